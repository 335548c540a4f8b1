"""Lines of stdin: whole, in order, in batches, as soon as they come."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.commands import bodies
from pushlane.commands.bodies import read_batches, split_lines
from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import LIMITS


def pipe(content: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    return reader


def collect(descriptor: int) -> list[list[bytes]]:
    async def main() -> list[list[bytes]]:
        return [batch async for batch in read_batches(descriptor)]

    try:
        return asyncio.run(main())
    finally:
        os.close(descriptor)


@given(st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line)), st.booleans())
def test_lines_are_those_of_the_input(content: list[bytes], ended: bool) -> None:
    text = b"\n".join(content) + (b"\n" if ended else b"")
    descriptor = pipe(text)
    found = list(split_lines(descriptor))
    os.close(descriptor)
    assert found == [line.rstrip(b"\r") for line in text.split(b"\n") if line.strip()]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_however_it_is_read(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(bodies, "READ_BYTES", size)
    assert list(split_lines(pipe(b"one\ntwo\r\n\nthree"))) == [b"one", b"two", b"three"]


def test_of_a_line_without_end_only_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_BYTES", 4)
    monkeypatch.setattr(bodies, "LINE_BYTES", 10)
    assert list(split_lines(pipe(b"x" * 35 + b"\nend\n"))) == [b"x" * 10, b"end"]
    assert list(split_lines(pipe(b"a\n" + b"x" * 35))) == [b"a", b"x" * 10]


def test_what_is_cut_is_larger_than_any_message_may_be() -> None:
    assert LIMITS["message_bytes"].maximum < bodies.LINE_BYTES


def test_an_input_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BadRequest, match="stdin can't be read: Is a directory"):
        collect(descriptor)


def test_batches_have_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BATCH", 10)
    batches = collect(pipe(b"".join(b"%d\n" % number for number in range(95))))
    assert [int(line) for batch in batches for line in batch] == list(range(95))
    assert max(map(len, batches)) <= 10


def test_nothing_at_all() -> None:
    assert collect(pipe(b"")) == []
    assert collect(pipe(b"\n\n")) == []


def test_a_slow_input_is_not_kept_waiting() -> None:
    reader, writer = os.pipe()

    async def main() -> None:
        batches = read_batches(reader)
        for text in (b"one\n", b"two\n"):
            os.write(writer, text)
            async with asyncio.timeout(60):
                assert await anext(batches) == [text.strip()]
        os.close(writer)
        async with asyncio.timeout(60):
            assert [batch async for batch in batches] == []

    asyncio.run(main())
    os.close(reader)


def test_a_process_that_waits_for_input_can_end() -> None:
    script = (
        "import asyncio\n"
        "from pushlane.commands.bodies import read_batches\n"
        "async def main():\n"
        "    async with asyncio.timeout(0.2):\n"
        "        async for batch in read_batches(): pass\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except TimeoutError:\n"
        "    print('ended')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        assert process.wait(timeout=20) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"ended\n"
