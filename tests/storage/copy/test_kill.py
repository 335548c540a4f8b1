"""The command killed with SIGKILL, and run again: it goes on, and ends as if nothing had been."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pushlane_storage.copy.run import Copied, copy
from pushlane_storage.errors import FolderUnusable, KeyspaceUnusable
from pushlane_storage.url import open_store
from tests.held import held, let_go
from tests.repo import ROOT
from tests.storage.copy.test_round_trip import EVERYTHING
from tests.storage.copy.tools import QUICK, contents, fill

UNITS = 4 + 3 + 12


def kill(*runs: tuple[str, int, str, str]) -> None:
    """Run the command, each time until it is killed: at which point, and when it gets there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.copy.killed", msgspec.json.encode(runs).decode()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == [str(-signal.SIGKILL)] * len(runs), (done.stdout, done.stderr)


def check_finished(done: Copied) -> None:
    assert done.outcome == "finished"
    assert done.record is not None
    assert done.record.copied == EVERYTHING


POINTS = [
    ("begun", 1),
    ("half a unit", 1),
    ("half a unit", 9),
    ("unit", UNITS),
    ("noted", 4),
    ("verified", 1),
    ("named", 1),
]


async def test_a_folder(folder: Path) -> None:
    """At every point, each time into a new folder."""
    source = f"sqlite:{folder / 'source'}"
    targets = [folder / f"target{number}" for number in range(len(POINTS))]
    world = await fill(source)
    kill(
        *(
            (*point, source, f"sqlite:{target}")
            for point, target in zip(POINTS, targets, strict=True)
        )
    )
    for target in targets:
        assert not (target / "pushlane.db").exists()
        with pytest.raises(FolderUnusable, match=r"a copy into .* is not finished: run it again"):
            await held(open_store(f"sqlite:{target}"))
        check_finished(await copy(source, f"sqlite:{target}"))
        assert {path.name for path in target.iterdir()} == {"lock", "pushlane.db"}
    expected = await contents(source, world)
    for target in targets:
        assert await contents(f"sqlite:{target}", world) == expected


async def test_a_folder_again_and_again_until_it_is_finished(folder: Path) -> None:
    source, target = f"sqlite:{folder / 'source'}", f"sqlite:{folder / 'target'}"
    world = await fill(source)
    points = (("unit", 2), ("unit", 7), ("half a unit", 5), ("noted", 3), ("finished", 1))
    kill(*((*point, source, target) for point in points))
    for _ in range(2):
        done = await copy(source, target)
        assert done.outcome == "finished before"
        assert done.record is not None
        assert done.record.copied == EVERYTHING
    store = await held(open_store(target))  # served or not, it is what it is
    assert (await copy(source, target)).outcome == "finished before"
    await let_go(store)
    assert await contents(target, world) == await contents(source, world)


async def test_a_keyspace(folder: Path, keyspace: Callable[[], str]) -> None:
    source, target, back = f"sqlite:{folder / 'a'}", keyspace(), f"sqlite:{folder / 'b'}"
    world = await fill(source)
    points = (("begun", 1), ("half a unit", 6), ("noted", 3), ("opened", 9))
    kill(*((*point, source, target) for point in points))
    with pytest.raises(KeyspaceUnusable, match=r"a copy into .* is not finished: run it again"):
        await held(open_store(target))
    check_finished(await copy(source, target, limits=QUICK))
    expected = await contents(source, world)
    assert await contents(target, world) == expected

    kill(("unit", UNITS - 4, target, back))
    check_finished(await copy(target, back, limits=QUICK))
    assert await contents(back, world) == expected
