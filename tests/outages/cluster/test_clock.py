"""A process whose wall clock jumps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.outages.cluster.clock import WallClock, compile_clock

JUMP_S = 300
NEAR_S = 60
SAY = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""


def test_only_wall_time_jumps(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock", compile_clock(tmp_path))
    command = [*clock.within, sys.executable, "-c", SAY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = []
        for ahead in (0, JUMP_S, -JUMP_S, 0):
            clock.set_ahead(ahead)
            process.stdin.write("\n")
            process.stdin.flush()
            told.append([float(word) for word in process.stdout.readline().split()])
        process.stdin.close()
    first = told[0]
    for ahead, times in zip((0, JUMP_S, -JUMP_S, 0), told, strict=True):
        wall, *others = (now - before for now, before in zip(times, first, strict=True))
        assert abs(wall - ahead) < NEAR_S
        assert all(0 <= passed < NEAR_S for passed in others)
