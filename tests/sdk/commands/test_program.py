"""A program for a message: fed, waited for, and stopped with all that it started."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from pushlane.commands import program
from pushlane.commands.program import run_program


def test_its_status_comes_back() -> None:
    assert asyncio.run(run_program('read x; test "$x" = a; exit $((2 + $?))', b"a\n", {})) == 2
    assert asyncio.run(run_program("no-such-program-at-all 2>/dev/null", b"", {})) == 127


def test_it_sees_our_environment_and_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    out = tmp_path / "out"
    asyncio.run(run_program(f'echo "$OURS $THEIRS" > {out}', b"", {"THEIRS": "2"}))
    assert out.read_text() == "1 2\n"


@pytest.mark.parametrize("stubborn", ["nobody", "its child", "all"])
def test_when_we_are_cancelled_its_whole_family_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: str
) -> None:
    monkeypatch.setattr(program, "KILL_AFTER", 0.3)
    trap = "trap '' TERM; " if stubborn == "all" else ""
    child = "sh -c \"trap '' TERM; sleep 60; sleep 60\"" if stubborn == "its child" else "sleep 60"
    command = f"{trap}{child} & echo $! > {tmp_path}/pid; wait; sleep 60"

    async def main() -> None:
        task = asyncio.create_task(run_program(command, b"", {}))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    _wait_for_end(int((tmp_path / "pid").read_text()))


def test_who_is_cancelled_while_it_starts_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = asyncio.create_subprocess_shell
    begun = tmp_path / "pid"

    async def slow(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*args, **options)
        while not begun.exists() or not begun.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_shell", slow)

    async def main() -> None:
        task = asyncio.create_task(run_program(f"sleep 60 & echo $! > {begun}; wait", b"", {}))
        while not begun.exists() or not begun.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    _wait_for_end(int(begun.read_text()))


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _runs(pid):
        assert time.monotonic() < deadline, "the child of the shell still runs"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """What is dead and waits to be reaped, by whoever adopted it, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
