"""A program for a message: fed, waited for, and stopped with all that it started."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

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


@pytest.mark.parametrize("stubborn", [False, True])
def test_when_we_are_cancelled_its_whole_family_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr(program, "KILL_AFTER", 0.3)
    trap = "trap '' TERM; " if stubborn else ""
    command = f"{trap}sleep 60 & echo $! > {tmp_path}/pid; wait; sleep 60"

    async def main() -> None:
        task = asyncio.create_task(run_program(command, b"", {}))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    child = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.02)
    pytest.fail("the child of the shell still runs")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
