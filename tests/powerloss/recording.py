"""Recording: compile the recorder, run the lives of a workload under it, read the log.

Everything is kept in memory (a tmpfs) when there is one: thousands of images are written, and none
is meant to last.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.powerloss.damage import Kept
from tests.powerloss.disk import Disk
from tests.powerloss.log import DamagedLog, Record, read_log
from tests.powerloss.workload import KILLED

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
LIVES = 2
SYNC_US = 300
"""About what a disk takes (docs: fdatasync p50 0.4 ms), so that groups gather as they would."""
TIMEOUT_S = 120


class NoCompiler(Exception):
    """A library is C, and there is nothing here to compile it."""


class WorkloadFailed(Exception):
    """The recorded process ended in a way that was not planned."""


@cache
def scratch() -> Path:
    """Where to put what is not meant to last."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path("/tmp")


def compile_recorder(folder: Path) -> Path:
    return compile_library(HERE / "recorder.c", folder)


def compile_library(source: Path, folder: Path) -> Path:
    """A library to put under a process, compiled on the spot."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    what = source.relative_to(REPOSITORY)
    if compiler is None:
        raise NoCompiler(
            f"{what} must be compiled, but there is no C compiler: "
            "install gcc (apt-get install gcc libc6-dev)"
        )
    library = folder / f"{source.stem}.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, "-o", str(library), str(source)], capture_output=True, text=True
    )
    if done.returncode:
        raise NoCompiler(f"{what} can't be compiled with {compiler}:\n{done.stderr}")
    return library


def run_recorded(library: Path, folder: Path, log: Path, command: list[str]) -> int:
    """Run a command whose changes of a folder are logged; its exit status."""
    environment = dict(os.environ)
    environment |= {
        "LD_PRELOAD": str(library),
        "RECORD_DIR": str(folder.resolve()),
        "RECORD_LOG": str(log),
        "RECORD_SYNC_US": str(SYNC_US),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode not in (0, KILLED):
        raise WorkloadFailed(f"exit status {done.returncode}:\n{done.stderr[-4000:]}")
    return done.returncode


def record(folder: Path, seed: int, plant: str = "", lives: int = LIVES) -> list[Record]:
    """The log of a whole run, made in an empty folder; the log stays there as `log`."""
    library = compile_recorder(folder)
    watched, log = folder / "watched", folder / "log"
    watched.mkdir()
    log.touch()
    for life in range(lives):
        command = [sys.executable, "-m", "tests.powerloss.workload", str(watched)]
        options = {"seed": seed, "life": life, "plant": plant, "log": log}
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        run_recorded(library, watched, log, command)
    records = read_log(log)
    compare(records, watched)
    return records


def compare(records: list[Record], folder: Path) -> None:
    """What the log says must be what is there: else something got past the recorder."""
    disk = Disk()
    for record in records:
        disk.feed(record)
    told = disk.image(Kept())
    there = {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
        if not path.name.endswith("-shm")
    }
    if told != there:
        names = sorted(
            name for name in {*told, *there} if told.get(name, b"-") != there.get(name, b"-")
        )
        raise DamagedLog(f"the recorder missed changes of {', '.join(names)}")
