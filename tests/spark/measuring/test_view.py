"""What one reader may see."""

from __future__ import annotations

from pushlane_spark.measuring.series import BACKLOG
from pushlane_spark.measuring.view import make_view
from pushlane_spark.period import Minutes
from tests.spark.measuring.views import BUSY, COUNTED, STORED, TROUBLE, view_of
from tests.spark.usage_store import MONDAY


def test_operators_see_all() -> None:
    view = view_of(None)
    assert [moment.window for moment in view.moments] == [MONDAY, MONDAY + 10, MONDAY + 20]
    assert view.moments[0].counters["published"] == 607
    assert view.moments[2].counters == {}
    assert view.total["published"] == 607
    assert view.total["connections"] == 2
    assert view.queues.keys() == {("ann", "a<b>"), ("bob", "b")}
    assert view.name(("bob", "b")) == "bob/b"
    assert (view.sizes, view.damaged) == ({30: 100, 28: 7}, 3)
    assert len(view.anomalies) == len(view.keys) == 2


def test_tenants_see_their_own() -> None:
    view = view_of("bob")
    assert view.moments[0].counters == {"published": 7}
    assert view.total == {"published": 7}
    assert view.queues == {("bob", "b"): {"published": 7}}
    assert view.shards == {("bob", "b"): {0: 7}}
    assert [anomaly.tenant for anomaly in view.anomalies] == ["bob"]
    assert [hot.key for hot in view.keys] == ["secret"]
    assert view.states == {("bob", "b"): {"open": 7}}
    assert (view.sizes, view.bytes, view.damaged) == ({28: 7}, {("bob", "b"): 700}, 0)
    assert view.name(("bob", "b")) == "b"
    assert view_of("ann").moments[1].counters[BACKLOG] == BUSY[BACKLOG]


def test_windows_at_the_ends_are_shorter() -> None:
    period = Minutes(MONDAY + 4, MONDAY + 21)
    view = make_view(None, period, 10, COUNTED, TROUBLE, STORED)
    assert [(moment.window, moment.minutes) for moment in view.moments] == [
        (MONDAY, 6),
        (MONDAY + 10, 10),
        (MONDAY + 20, 1),
    ]
