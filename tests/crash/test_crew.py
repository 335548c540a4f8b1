"""How long a crew waits until everything has drained."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import pytest

from pushlane_history import event as history
from tests.crash import crew
from tests.crash.crew import Crew
from tests.crash.recorder import merged

SHORT_S, LONG_S = 0.3, 60.0


def left_by(folder: Path, left: Callable[[], int], seconds: float) -> int:
    some = Crew(folder, 1)
    some.finish(left, seconds)
    some.write()
    [told] = [one for one in merged(some.histories) if isinstance(one, history.Drained)]
    return told.left


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "DRAIN_S", SHORT_S)


def test_it_waits_while_there_is_less_and_less(tmp_path: Path) -> None:
    counts = iter(range(10, -1, -1))  # a tenth of a second each: longer than its patience
    assert left_by(tmp_path, lambda: next(counts), LONG_S) == 0


def test_it_gives_up_when_nothing_more_is_done(tmp_path: Path) -> None:
    counts = chain(range(9, 5, -1), repeat(6))
    assert left_by(tmp_path, lambda: next(counts), LONG_S) == 6


def test_it_gives_up_in_the_end(tmp_path: Path) -> None:
    counts = iter(range(10_000, 0, -1))
    assert left_by(tmp_path, lambda: next(counts), SHORT_S) > 6
