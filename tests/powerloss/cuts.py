"""Where to cut: at every sync, just before it takes effect and just after; after answers; between.

A cut is a place in the log: what stands before it has happened.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from pushlane_history import event as history
from tests.powerloss.damage import choose
from tests.powerloss.log import Kind, Record, parse_mark

ANSWERS = (history.Published, history.Verdict)


class Cut(NamedTuple):
    number: int
    """What it is called in reports: with the log, it makes the same image again."""
    place: int
    kind: str
    damage: str


def plan(records: list[Record], images: int, seed: int) -> list[Cut]:
    """Cuts by place: both sides of every sync, then others until there are enough.

    When that is more than was asked for, some of them at random.
    """
    rng = Random(f"cuts/{seed}")
    ends = [i for i, record in enumerate(records) if record.kind is Kind.SYNC_END]
    places = [(i, "before a sync") for i in ends] + [(i + 1, "after a sync") for i in ends]
    answers = _answers(records)
    while len(places) < images:
        if answers and rng.random() < 0.5:
            places.append((rng.choice(answers) + 1, "after an answer"))
        else:
            places.append((rng.randint(1, len(records)), "between"))
    rng.shuffle(places)
    del places[images:]
    cuts = [Cut(n, place, kind, choose(rng)) for n, (place, kind) in enumerate(places)]
    return sorted(cuts, key=lambda cut: cut.place)


def _answers(records: list[Record]) -> list[int]:
    """Where somebody was told that something is durable, and no more answers follow at once."""
    marks = [i for i, record in enumerate(records) if record.kind is Kind.MARK]
    answers = {i for i in marks if isinstance(parse_mark(records[i].data), ANSWERS)}
    return sorted(i for i in answers if i + 1 not in answers)
