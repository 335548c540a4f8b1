"""The job in a process of its own, which tells of each step before it goes on; and its killer.

python -m tests.spark.retaining.child STORE ARCHIVE URL
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pushlane_spark.retaining.job import run
from pushlane_spark.session import open_session
from tests.spark.conftest import SETTINGS

LAST = "done"


class Kill(NamedTuple):
    step: str
    """What it had told last, so where it was."""
    number: int
    """It had told of so many."""
    delay_ms: int
    """How long it had gone on since the step that was waited for."""

    def __str__(self) -> str:
        return f"{self.step!r} ({self.number}; +{self.delay_ms} ms)"


def kill_after(number: int, delay_s: float, log: Path, *job: str) -> Kill | None:
    """Run the job and kill it, so long after it told of so many steps; None: it came to its end.

    Its JVM is killed with it: alone it would finish what it was at.
    """
    # What a killed JVM leaves behind: it has copied its jars.
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-kill-", ignore_cleanup_errors=True) as scratch,
        log.open("a") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.retaining.child", *job],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": scratch, "SPARK_LOCAL_DIRS": scratch},
        ) as child,
    ):
        assert child.stdout is not None
        try:
            told = list(islice(child.stdout, number))
            if len(told) == number:
                time.sleep(delay_s)
            else:
                child.wait()
        finally:
            if child.returncode is None:  # so its id is still its own
                os.killpg(child.pid, signal.SIGKILL)
        # The JVM has this pipe, too: at its end nobody is at work any more.
        told += child.stdout
    steps = [line.strip() for line in told]
    if steps[-1:] == [LAST]:
        return None
    said = log.read_text(errors="replace")[-3000:]
    assert child.returncode == -signal.SIGKILL, f"it failed after {steps}: {said}"
    return Kill(steps[-1], len(steps), round(delay_s * 1000))


def settings(scratch: str) -> Mapping[str, str]:
    """Of a JVM that leaves its files there."""
    name = "spark.driver.extraJavaOptions"
    return {**SETTINGS, name: f"{SETTINGS[name]} -Djava.io.tmpdir={scratch}"}


def main(store: str, archive: str, url: str) -> None:
    spark = open_session("retention", master="local[1]", settings=settings(tempfile.gettempdir()))
    run(
        spark,
        store,
        archive=archive,
        url=url,
        group_messages=20,
        at=lambda step: print(step, flush=True),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
