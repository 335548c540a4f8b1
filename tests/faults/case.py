"""A case: a store with a past, one fault, a life under it, a restart on a healthy disk, a verdict.

The past is made once for a seed, on a healthy disk; every case of the seed begins with a copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from pushlane_history import event as history
from pushlane_storage.sqlite.folder import DATABASE
from tests.faults.control import FOR_EVER, Control, File, Operation, Point
from tests.faults.library import run_faulty
from tests.faults.notebook import read_notebook
from tests.faults.workload import CLOSED, GOOD, LIFTED, STOPPED
from tests.powerloss.judge import Judge, Past
from tests.powerloss.log import Mark
from tests.powerloss.workload import FOLDER

MODULE = "tests.faults.workload"
SYNC_US = 200
"""About what a good disk takes, so that groups gather as they would."""

POINTS = tuple(
    Point(file, operation)
    for file, operation in (
        (File.DATABASE, Operation.WRITE), (File.DATABASE, Operation.SYNC),
        (File.DATABASE, Operation.READ), (File.LOG, Operation.WRITE), (File.LOG, Operation.SYNC),
        (File.LOG, Operation.READ), (File.FOLDER, Operation.SYNC),
    )
)  # fmt: skip

FATAL = {
    point
    for point in POINTS
    if point.operation is not Operation.READ and point.file is not File.FOLDER
}
"""After these nothing is certain. SQLite syncs the folder on its own account, too, and doesn't mind
when that fails: the store's own sync of it, at opening, is the one that counts."""

REFUSALS = {"unavailable", "throttled"}
"""What a producer may be told when the disk is at fault: both say that it can try again."""
CODES = {GOOD: "in good order", STOPPED: "stopped by the store", CLOSED: "could not be opened"}


class Case(msgspec.Struct, frozen=True):
    seed: int
    point: Point | None
    """What fails; None: the disk is full."""
    at: int
    """The call that fails, or the size of the disk beyond what is stored."""
    times: int
    plant: str = ""

    def __str__(self) -> str:
        if self.point is None:
            return f"seed {self.seed}, {self.at} bytes of room"
        calls = "every call from" if self.times == FOR_EVER else f"{self.times} calls from"
        return f"seed {self.seed}, {self.point}: {calls} number {self.at} on"


class Verdict(msgspec.Struct):
    case: Case
    ended: str
    struck: int
    """Calls that failed."""
    refused: int
    """Publishes that were refused."""
    settled: int
    """Settles that were confirmed after the first refusal, and before there was room again."""
    faults: list[str]


class Seed(msgspec.Struct):
    """The past of a seed's cases."""

    number: int
    folder: Path
    size: int
    """Of what is stored."""
    growth: int
    """What a life adds when there is room."""
    calls: dict[Point, int]
    """Of a life on a healthy disk."""


def prepare(library: Path, folder: Path, number: int) -> Seed:
    """Two lives on a healthy disk: the past, and one to see what a life does."""
    folder.mkdir()
    past, probe = folder / "past", folder / "probe"
    past.mkdir()
    _life(library, past, number, 0)
    size = (past / FOLDER / DATABASE).stat().st_size
    shutil.copytree(past, probe)
    control = Control(probe / "probe")
    control.limit(1 << 40)  # not a limit, but the sizes are watched
    _life(library, probe, number, 1, control)
    calls = {point: control.calls(point) for point in POINTS}
    grown = control.most
    control.close()
    shutil.rmtree(probe)
    return Seed(number, past, size, grown - size, calls)


def _life(library: Path, place: Path, seed: int, life: int, control: Control | None = None) -> None:
    done, _ = run_life(library, place, seed, life, control or Control(place / "control"))
    assert done == GOOD, f"a life on a healthy disk ended with {done}"


def run_life(
    library: Path, place: Path, seed: int, life: int, control: Control, plant: str = ""
) -> tuple[int, str]:
    control.slow_down(SYNC_US)
    done = run_faulty(
        library, place / FOLDER, control.path, MODULE, "--seed", seed, "--life", life,
        "--history", place / "history", "--control", control.path, "--plant", plant,
    )  # fmt: skip
    return done.returncode, done.stderr


def try_case(library: Path, seed: Seed, case: Case, place: Path) -> Verdict:
    """Everything about one case, in a folder of its own."""
    shutil.copytree(seed.folder, place)
    before = len(read_notebook(place / "history"))
    control = Control(place / "faults")
    if case.point is None:
        control.limit(seed.size + case.at)
    else:
        control.fail(case.point, case.at, case.times)
    code, said = run_life(library, place, case.seed, 1, control, case.plant)
    struck = control.failed + control.short
    past, marks = Past(), read_notebook(place / "history")
    for mark in marks:
        past.add(mark)
    told = look(marks[before:])
    faults = told.faults
    if case.point is None and told.mute:
        faults.append("nothing could be published any more, with all the room there is")
    if code not in CODES:
        faults.append(f"it ended with {code}:\n{said[-3000:]}")
    if code == GOOD and struck and case.point in FATAL:
        faults.append("a write or sync failed, and it went on")
    faults += Judge(past, Random(f"judge/{case.seed}")).run(place)
    control.close()
    shutil.rmtree(place)
    return Verdict(case, CODES.get(code, str(code)), struck, told.refused, told.settled, faults)


class Told(NamedTuple):
    """What a life tells."""

    refused: int
    settled: int
    mute: bool
    """Nothing was published after there was room again."""
    faults: list[str]


def look(marks: list[Mark]) -> Told:
    refused = settled = published = 0
    lifted = False
    faults = []
    for mark in marks:
        match mark:
            case history.PublishFailed(code=code) if code != "connection_lost":
                refused += 1
                if code not in REFUSALS:
                    faults.append(f"a publish failed with {code}")
            case history.Verdict(result="ok") if refused and not lifted:
                settled += 1
            case history.Fault(kind=kind) if kind == LIFTED:
                lifted, published = True, 0
            case history.Published():
                published += 1
    return Told(refused, settled, lifted and not published, faults)
