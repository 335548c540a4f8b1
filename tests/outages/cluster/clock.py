"""The wall clock of one process, which jumps when it is told to: `clock.c`, put under it."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.powerloss.recording import compile_library

SOURCE = Path(__file__).with_name("clock.c")
NS = 1_000_000_000


class WallClock:
    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self._library = library
        file.write_bytes(struct.pack("=q", 0))

    @property
    def within(self) -> list[str]:
        """What to put before the command of the process."""
        return ["env", f"LD_PRELOAD={self._library}", f"CLOCK_FILE={self._file}"]

    def set_ahead(self, seconds: float) -> None:
        """Of the true time, from now on; less than 0: behind it."""
        with self._file.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack("=q", round(seconds * NS)))


def compile_clock(folder: Path) -> Path:
    return compile_library(SOURCE, folder)
