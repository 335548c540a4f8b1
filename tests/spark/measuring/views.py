"""Views for tests: of a tenant that did a little of everything, and of one that did nothing."""

from __future__ import annotations

from pushlane_spark.measuring.anomalies import Anomaly
from pushlane_spark.measuring.series import BACKLOG, OLDEST, Counted
from pushlane_spark.measuring.stored import NOTHING, HotKey, Stored
from pushlane_spark.measuring.view import View, make_view
from pushlane_spark.period import Minutes
from tests.spark.usage_store import MONDAY

PERIOD = Minutes(MONDAY, MONDAY + 30)
BUSY = {
    "published": 600,
    "delivered": 620,
    "acked": 580,
    "retried": 20,
    "dead.rejected": 3,
    "bytes_in": 6_000_000,
    "bytes_out": 6_200_000,
    "connection_ms": 90_000,
    BACKLOG: 40,
    OLDEST: 90_000,
    "publish_ms.4": 600,
    "delivery_ms.12": 600,
    "ack_ms.20": 580,
}
TROUBLE = [
    Anomaly("ann", "a<b>", MONDAY, "published", 5, 900, 450, 1_350, 4, 2.0),
    Anomaly("bob", "b", MONDAY, "delivery_p95_ms", 9_000, 90, 0, 190, 5, 80.0),
]
COUNTED = Counted(
    {("ann", MONDAY): BUSY, ("ann", MONDAY + 10): BUSY, ("bob", MONDAY): {"published": 7}},
    {("ann", "a<b>"): BUSY, ("ann", ""): {"connections": 2}, ("bob", "b"): {"published": 7}},
    {("ann", "a<b>"): {0: 500, 1: 100}, ("bob", "b"): {0: 7}},
)
STORED = Stored(
    [HotKey("ann", "a<b>", "k&1", 30, 3_000), HotKey("bob", "b", "secret", 7, 700)],
    {("ann", "a<b>"): {"open": 50, "acked": 50}, ("bob", "b"): {"open": 7}},
    {("ann", "a<b>"): {30: 100}, ("bob", "b"): {28: 7}},
    {("ann", "a<b>"): 20_000, ("bob", "b"): 700},
    {("ann", "a<b>"): 3},
)


def view_of(tenant: str | None) -> View:
    return make_view(tenant, PERIOD, 10, COUNTED, TROUBLE, STORED)


def empty_view() -> View:
    return make_view(None, PERIOD, 10, Counted({}, {}, {}), [], NOTHING)
