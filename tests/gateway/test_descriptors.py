"""With the descriptor table full: keys are still followed. And the warning before it comes."""

from __future__ import annotations

import logging
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from pushlane_gateway.auth.key_file import remove_key
from pushlane_gateway.descriptors import OTHERS, Reserve, ensure_descriptors
from tests.gateway.auth.tools import make_token
from tests.gateway.client import WireClient
from tests.gateway.process import Process, serving


def open_descriptors(process: Process) -> int:
    return len(list(Path(f"/proc/{process.popen.pid}/fd").iterdir()))


def fill(process: Process, stack: ExitStack) -> None:
    """Leave the server no descriptor: more connections than it may have."""
    most = open_descriptors(process) + 10
    resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (most, most))
    fill_up(process, stack)
    while open_descriptors(process) < most:
        time.sleep(0.01)


def fill_up(process: Process, stack: ExitStack) -> None:
    host, _, port = process.url.removeprefix("http://").partition(":")
    for _ in range(20):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=30))


def ended(it: WireClient) -> int:
    """The code with which the server closed it."""
    with pytest.raises(ConnectionClosed) as closed:
        it.hear("nothing")
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_a_revoked_key_ends_though_the_table_is_full(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    made = [make_token(keys, "consume:q") for _ in range(2)]
    settings = "auth.reload_ms=100", "gateway.head_ms=600000"
    flags = [flag for setting in settings for flag in ("--set", setting)]
    with serving(tmp_path, "--keys-file", str(keys), *flags) as process, ExitStack() as stack:
        clients = [stack.enter_context(WireClient(process.url, token=text)) for _, text in made]
        fill(process, stack)
        for (key, _), it in zip(made, clients, strict=True):
            remove_key(keys, key.id)
            assert ended(it) == 1008
            # the descriptor is there again for the next time, and the table full again
            fill_up(process, stack)
        assert "can't be read" not in process.errors.read_text()


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """Pretend that these are ours; what they are set to."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: asked.append(value))
    return asked


def test_enough_is_enough(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for soft in (1_000 + OTHERS, resource.RLIM_INFINITY):
        assert limits(monkeypatch, soft, soft) == []
        ensure_descriptors(1_000)
    assert caplog.text == ""


@pytest.mark.parametrize("hard", [500_000, resource.RLIM_INFINITY])
def test_the_soft_limit_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hard: int
) -> None:
    asked = limits(monkeypatch, 1_024, hard)
    ensure_descriptors(20_000)
    assert asked == [(20_000 + OTHERS, hard)]
    assert caplog.text == ""


def test_a_hard_limit_that_is_too_low_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    asked = limits(monkeypatch, 1_024, 4_096)
    ensure_descriptors(20_000)
    assert asked == [(4_096, 4_096)]
    assert "only 4096 file descriptors are allowed (ulimit -n)" in caplog.text
    assert "raise the limit to 20256, or lower gateway.connections to 3840" in caplog.text


def test_serve_tells_a_hard_limit_that_is_too_low(tmp_path: Path) -> None:
    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 512))

    with serving(tmp_path, "--set", "gateway.connections=1000", prepare=prepare) as process:
        assert resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE) == (512, 512)
        told = process.errors.read_text()
    assert "only 512 file descriptors are allowed (ulimit -n)" in told
    assert "raise the limit to 1256, or lower gateway.connections to 256" in told


@contextmanager
def full_table() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while len(taken) <= taken[0]:  # no gap is left below the highest
        taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def read() -> bytes:
    with open("/proc/self/comm", "rb") as file:
        return file.read()


def test_it_reads_when_nothing_else_can() -> None:
    with Reserve() as reserve, full_table():
        with pytest.raises(OSError, match="Too many open files"):
            read()
        for _ in range(3):
            assert reserve.use(read)
        with pytest.raises(OSError, match="Too many open files"):
            read()


def test_a_failure_gives_it_back() -> None:
    with Reserve() as reserve, full_table():
        with pytest.raises(ZeroDivisionError):
            reserve.use(lambda: 1 / 0)
        assert reserve.use(read)


def test_none_to_be_had() -> None:
    with full_table():
        reserve = Reserve()
        with pytest.raises(OSError, match="Too many open files"):
            reserve.use(read)
    reserve.take()
    reserve.take()
    assert reserve.use(read)
    reserve.give_up()
