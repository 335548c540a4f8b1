"""How outages are measured."""

from __future__ import annotations

import pytest

from pushlane_history.event import AnyEvent, Publish, Published, PublishFailed
from tests.outages.__main__ import table
from tests.outages.campaign import Plan
from tests.outages.faults import FAULTS, SOON_MS
from tests.outages.gaps import Confirmations, Window, longest


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([0, 90, 110, 150, 190, 210], 40),
        ([0, 90, 195, 205], 95),
        ([0, 99, 201], 101),
        ([0, 50, 190], 90),
        ([150, 160], 40),
        ([0], 100),
        ([300], 0),
        ([0, 100, 200, 900], 100),
        ([0, 160, 290], 130),
        ([0, 160, 900], 140),
    ],
    ids=[
        "small ones", "in the middle", "all through", "from its beginning", "until its end",
        "no answer at all", "it began later", "later ones don't count",
        "beyond its end", "up to the next fault",
    ],
)  # fmt: skip
def test_the_longest_gap_in_a_window(times: list[int], gap: int) -> None:
    assert longest(times, Window("fault", SOON_MS, 100, 200, 300)) == gap


def test_every_producer_and_queue_counts_for_itself() -> None:
    asked: list[AnyEvent] = [
        Publish(0, 1, "q", "u1", producer="p"),
        Publish(0, 2, "other", "u2", producer="p"),
        Publish(0, 3, "q", "u3", producer="stray"),
    ]
    told: list[AnyEvent] = [
        Published(130, 1, "m1"), PublishFailed(140, 2, "unavailable"), Published(150, 3, "m3"),
    ]  # fmt: skip
    window = Window("fault", SOON_MS, 100, 200)
    Confirmations([*asked, *told]).measure(window, lambda producer: producer == "p")
    assert window.outages == {"p q": 70, "p other": 100}
    assert window.outage_ms == 100


def test_the_table_has_a_line_for_each_fault() -> None:
    kind = next(iter(FAULTS))
    windows = [Window(kind, SOON_MS, 0, 9, load=1.5, outages={"p q": n}) for n in (10, 30, 700)]
    *_, line = table(windows)
    assert line == f"| {kind} | 3 | 30 ms | 700 ms | 5000 ms | 1.5 |"


def test_a_plan_is_decided_by_its_seed() -> None:
    plan = Plan(1, times=3)
    assert sorted(plan.rounds()) == sorted([*FAULTS] * 3)
    assert plan.rounds() == Plan(1, times=3).rounds() != Plan(2, times=3).rounds()


def test_each_turn_of_a_plan_has_another_order() -> None:
    plan = Plan(1, times=3)
    assert plan.rounds(0) == plan.rounds() != plan.rounds(1)
    assert sorted(plan.rounds(1)) == sorted(plan.rounds())
