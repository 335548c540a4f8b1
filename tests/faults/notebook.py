"""The notebook: the history of a run, in a file that does not stand on the disk that fails.

Every line is written at once: a process that ends in the middle of its work has told everything.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pushlane_history.event import Event
from tests.powerloss.log import Mark, parse_mark

_encode = msgspec.json.Encoder().encode


class Notebook:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, mark: Mark) -> None:
        line = (b"E" if isinstance(mark, Event) else b"N") + _encode(mark) + b"\n"
        assert os.write(self._file, line) == len(line)


def read_notebook(path: Path) -> list[Mark]:
    return [parse_mark(line) for line in path.read_bytes().splitlines()]
