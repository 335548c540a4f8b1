"""Locks between processes."""

import subprocess
import sys
from pathlib import Path

from tests.repo import ROOT
from tools.services.folder import is_held, locked

HOLD = """
import sys, time
from pathlib import Path
from tools.services.folder import locked
with locked(Path(sys.argv[1]), shared=True):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    with locked(path, shared=True), locked(path, shared=True):
        assert is_held(path)
    assert not is_held(path)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_held(path)
        holder.kill()
        holder.wait()
        with locked(path):
            assert is_held(path)


def test_a_lock_that_was_removed_while_we_waited_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        path.unlink()
        with locked(path):  # another file: it need not wait
            assert path.exists()
