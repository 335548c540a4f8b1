"""The ring over the driver: turns, retries, outcomes. Here the driver is played by a fake."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing
from cassandra import InvalidRequest, OperationTimedOut, Unauthorized, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import OverloadedErrorMessage

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import outcome_of
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Change, Level, Range, Write
from pushlane_storage.cassandra.tables import (
    EVERYBODY,
    HEARTBEATS,
    LANES,
    NODES,
    ROSTER,
    SLOTS,
    keyed,
)
from pushlane_storage.interface import StoreRefused, StoreUnknown
from tests.storage.cassandra.tools import until

WRITE = Write(LANES, [keyed(LANES, ("q", 0, 4), known=True)])
BEAT = Write(HEARTBEATS, [keyed(HEARTBEATS, ("p",), beat=1)])
SHOWN = Write(ROSTER, [keyed(ROSTER, (EVERYBODY, "p"), beat=1)])
CHANGE = Change(SLOTS, (1,), None, {"epoch": 1})
TIMEOUT = OperationTimedOut()
UNAVAILABLE = Unavailable("too few")
NOT_SENT = NoHostAvailable("none", {})


class Future:
    """One request, answered when the test says so."""

    def __init__(self, texts: list[tuple[str, Any]], level: int, serial: int) -> None:
        self.texts = texts
        self.level = level
        self.serial = serial
        self.attempted_hosts = ["host"]
        self._set = threading.Event()

    def add_callbacks(
        self, ok: Any, failed: Any, *, callback_args: tuple[Any, ...], errback_args: tuple[Any, ...]
    ) -> None:
        self._ok, self._failed, self._args = ok, failed, callback_args
        assert callback_args == errback_args
        self._set.set()

    def answer(self, rows: list[dict[str, Any]] | None = None) -> None:
        assert self._set.wait(10)
        self._ok(rows, *self._args)

    def fail(self, error: Exception) -> None:
        assert self._set.wait(10)
        if isinstance(error, NoHostAvailable):
            self.attempted_hosts = []
        self._failed(error, *self._args)


class Driver:
    """Stands for `Connection`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.sent: list[Future] = []
        self.closed = False
        self.bug: Exception | None = None
        self.down, self.suspects = 1, 2
        self.unprepared: set[str] = set()
        self.preparing: list[Callable[[Exception | None], None]] = []

    def missing(self, texts: list[tuple[str, Any]]) -> str | None:
        return next((text for text, _ in texts for name in self.unprepared if name in text), None)

    def prepare_soon(self, text: str, done: Callable[[Exception | None], None]) -> None:
        self.preparing.append(done)

    def begin(
        self,
        texts: list[tuple[str, Any]],
        level: int,
        serial: int,
        repeatable: bool,
        seconds: float,
    ) -> Future:
        if self.bug is not None:
            raise self.bug
        assert repeatable == (" IF " not in texts[0][0] and " + ? " not in texts[0][0])
        assert seconds == (10 if repeatable else 3), "who can't be asked twice is not waited for"
        future = Future(texts, level, serial)
        self.sent.append(future)
        return future

    def close(self) -> None:
        self.closed = True

    async def wait(self, count: int) -> Future:
        """The count-th request, from 1, when it is there."""
        await until(lambda: len(self.sent) >= count)
        return self.sent[count - 1]


@pytest.fixture
def driver() -> Driver:
    return Driver(Address(hosts=["h"], keyspace="k"))


@pytest.fixture
async def ring(driver: Driver) -> AsyncIterator[DriverRing]:
    ring = make(driver)
    yield ring
    with trio.CancelScope(shield=True):
        await ring.close()
    assert driver.closed


def make(driver: Driver, **bounds: int) -> DriverRing:
    limits = Limits(**{"in_flight": 4, "waiting": 3, "close_ms": 100, **bounds})
    return DriverRing(driver, limits)  # type: ignore[arg-type]


class Asked:
    """A write under way."""

    def __init__(self, ring: DriverRing, write: Write = WRITE) -> None:
        self.answers: list[Exception | None] = []
        ring.write_soon(write, self.answers.append)


async def settled() -> None:
    """What came from threads has been taken in."""
    for _ in range(3):
        await trio.sleep(0.01)


async def test_more_than_fit_wait_their_turn(ring: DriverRing, driver: Driver) -> None:
    asked = [Asked(ring) for _ in range(7)]
    await driver.wait(4)
    await settled()
    assert len(driver.sent) == 4
    assert (ring.numbers.in_flight, ring.numbers.waiting) == (4, 3)
    late = Asked(ring)
    await settled()
    assert isinstance(late.answers[0], StoreRefused)
    assert "3 requests wait" in str(late.answers[0])
    for number in range(7):
        (await driver.wait(number + 1)).answer()
    await settled()
    assert [one.answers for one in asked] == [[None]] * 7
    assert (ring.numbers.in_flight, ring.numbers.waiting) == (0, 0)
    assert ring.numbers.refused == 1


@pytest.mark.parametrize("write", [BEAT, SHOWN], ids=["heartbeats", "roster"])
async def test_what_says_who_is_alive_waits_behind_no_data(driver: Driver, write: Write) -> None:
    """Else a node under load would be taken for dead, and fenced."""
    ring = make(driver, urgent=2)
    data = [Asked(ring) for _ in range(7)]
    await driver.wait(4)
    beats = [Asked(ring, write) for _ in range(4)]
    await driver.wait(6)
    await settled()
    kinds = [write.table.name in future.texts[0][0] for future in driver.sent]
    assert kinds == [False] * 4 + [True] * 2
    assert (ring.numbers.in_flight, ring.numbers.waiting) == (6, 5)
    driver.sent[0].answer()
    await driver.wait(7)
    assert write.table.name in driver.sent[6].texts[0][0], (
        "they are before the data that came earlier"
    )
    for number in range(1, 11):
        (await driver.wait(number + 1)).answer()
    await settled()
    assert [one.answers for one in data + beats] == [[None]] * 11
    await ring.close()


async def test_what_is_unknown_is_sent_again(ring: DriverRing, driver: Driver) -> None:
    asked = Asked(ring)
    for number in (1, 2):
        (await driver.wait(number)).fail(TIMEOUT)
    (await driver.wait(3)).answer()
    await settled()
    assert asked.answers == [None]
    assert (ring.numbers.retries, ring.numbers.unknown) == (2, 0)
    assert len({str(future.texts) for future in driver.sent}) == 1


async def test_after_the_last_try_it_is_unknown(ring: DriverRing, driver: Driver) -> None:
    asked = Asked(ring)
    for number in (1, 2, 3):
        (await driver.wait(number)).fail(TIMEOUT)
    await settled()
    assert isinstance(asked.answers[0], StoreUnknown)
    assert len(driver.sent) == 3
    assert ring.numbers.unknown == 1


@pytest.mark.parametrize("refusal", [UNAVAILABLE, NOT_SENT])
async def test_a_refusal_after_that_decides_nothing(
    ring: DriverRing, driver: Driver, refusal: Exception
) -> None:
    asked = Asked(ring)
    (await driver.wait(1)).fail(TIMEOUT)
    (await driver.wait(2)).fail(refusal)
    (await driver.wait(3)).fail(refusal)
    await settled()
    assert isinstance(asked.answers[0], StoreUnknown)
    asked = Asked(ring)
    (await driver.wait(4)).fail(refusal)
    await settled()
    assert isinstance(asked.answers[0], StoreRefused)


async def test_what_must_not_be_repeated_is_not(
    ring: DriverRing, driver: Driver, nursery: trio.Nursery
) -> None:
    async def change() -> None:
        with pytest.raises(StoreUnknown):
            await ring.change(CHANGE)

    nursery.start_soon(change)
    (await driver.wait(1)).fail(TIMEOUT)
    await settled()
    assert len(driver.sent) == 1
    assert ring.numbers.retries == 0


async def test_whether_it_was_applied(
    ring: DriverRing, driver: Driver, nursery: trio.Nursery
) -> None:
    found: list[bool] = []

    async def change() -> None:
        found.append(await ring.change(CHANGE))

    for number, applied in enumerate((True, False), 1):
        nursery.start_soon(change)
        (await driver.wait(number)).answer([{"[applied]": applied}])
    await settled()
    assert found == [True, False]


async def test_who_gives_up_waiting_leaves_no_turn_behind(ring: DriverRing, driver: Driver) -> None:
    asked = [Asked(ring) for _ in range(4)]
    await driver.wait(4)
    with trio.move_on_after(0.05):
        await ring.read(Range(LANES, ("q",), 1))
    assert len(driver.sent) == 4
    for future in list(driver.sent):
        future.answer()
    await settled()
    assert [one.answers for one in asked] == [[None]] * 4
    assert len(driver.sent) == 4, "the read was never sent"
    with trio.move_on_after(0.05):
        await ring.read(Range(LANES, ("q",), 1))
    (await driver.wait(5)).fail(TIMEOUT)
    await settled()
    assert len(driver.sent) == 5, "nobody waits for it: it is not sent again"
    assert ring.numbers.in_flight == 0


async def test_of_two_answers_the_first_counts(
    ring: DriverRing, driver: Driver, nursery: trio.Nursery
) -> None:
    """Two nodes were asked, or the answer came with the time-out."""
    found: list[list[Any]] = []

    async def read() -> None:
        found.append(await ring.read(Range(LANES, ("q",), 1)))

    nursery.start_soon(read)
    future = await driver.wait(1)
    future.answer([{"beat": 1}])
    future.answer([{"beat": 2}])
    future.fail(TIMEOUT)
    await settled()
    assert found == [[{"beat": 1}]]
    nursery.start_soon(read)
    second = await driver.wait(2)
    second.fail(TIMEOUT)
    third = await driver.wait(3)
    second.answer([{"beat": 3}])  # of a try that was given up
    third.answer([{"beat": 4}])
    third.fail(TIMEOUT)
    await settled()
    assert found[1:] == [[{"beat": 4}]]
    assert ring.numbers.in_flight == 0


async def test_a_bug_of_ours_stays_a_bug(ring: DriverRing, driver: Driver) -> None:
    driver.bug = TypeError("a text for a number")
    asked = Asked(ring)
    await until(lambda: bool(asked.answers))
    assert asked.answers == [driver.bug]
    driver.bug = NOT_SENT
    asked = Asked(ring)
    await until(lambda: bool(asked.answers))
    assert isinstance(asked.answers[0], StoreRefused)


async def test_a_bug_of_the_driver_is_a_fault(ring: DriverRing, driver: Driver) -> None:
    asked = Asked(ring)
    for number in (1, 2, 3):
        (await driver.wait(number)).fail(AttributeError("no pool"))
    await settled()
    assert isinstance(asked.answers[0], StoreUnknown)


async def test_one_that_must_be_prepared_holds_up_no_other(
    ring: DriverRing, driver: Driver
) -> None:
    """A node that hangs may be the one that was asked to."""
    driver.unprepared = {LANES.name}
    asked = Asked(ring)
    await until(lambda: len(driver.preparing) == 1)
    beat = Asked(ring, BEAT)
    (await driver.wait(1)).answer()
    await settled()
    assert (asked.answers, beat.answers) == ([], [None])
    assert ring.numbers.in_flight == 1
    driver.unprepared = set()
    driver.preparing[0](None)
    (await driver.wait(2)).answer()
    await settled()
    assert asked.answers == [None]


async def test_one_that_can_not_be_prepared(ring: DriverRing, driver: Driver) -> None:
    driver.unprepared = {LANES.name}
    asked = Asked(ring)
    await until(lambda: len(driver.preparing) == 1)
    driver.preparing[0](InvalidRequest("no such table"))
    await settled()
    assert isinstance(asked.answers[0], StoreRefused)
    asked = Asked(ring)
    for number in (2, 3, 4):
        await until(lambda number=number: len(driver.preparing) == number)  # type: ignore[misc]
        driver.preparing[-1](TIMEOUT)
    await settled()
    assert isinstance(asked.answers[0], StoreUnknown)
    assert driver.sent == []
    assert ring.numbers.in_flight == 0


async def test_how_the_nodes_are(ring: DriverRing) -> None:
    assert (ring.numbers.nodes_down, ring.numbers.nodes_suspect) == (1, 2)


async def test_closing_waits_for_what_is_under_way(driver: Driver, nursery: trio.Nursery) -> None:
    ring = make(driver, close_ms=60_000)
    asked = Asked(ring)
    future = await driver.wait(1)
    nursery.start_soon(ring.close)
    await settled()
    assert not driver.closed
    late = Asked(ring)
    future.answer()
    await until(lambda: driver.closed)
    assert asked.answers == [None]
    assert isinstance(late.answers[0], StoreRefused)


@pytest.mark.parametrize(
    ("dc", "expected"),
    [
        (None, [(4, 8), (1, 8), (5, 8), (4, 8), (8, 8), (8, 8), (4, 8)]),
        ("dc1", [(6, 9), (10, 9), (5, 9), (6, 9), (9, 9), (8, 8), (4, 8)]),
    ],
)
async def test_levels(
    dc: str | None, expected: list[tuple[int, int]], nursery: trio.Nursery
) -> None:
    """QUORUM, or with several data centres LOCAL_QUORUM; but slots are decided by all of them."""
    driver = Driver(Address(hosts=["h"], keyspace="k", dc=dc))
    ring = make(driver, in_flight=100)
    for level in (Level.QUORUM, Level.ONE, Level.ALL):
        nursery.start_soon(ring.write, WRITE._replace(level=level))
        await driver.wait(len(driver.sent) + 1)
    calls: list[tuple[Any, Any]] = [
        (ring.read, Range(NODES, ("p",), 1)),
        (ring.read, Range(NODES, ("p",), 1, level=Level.SERIAL)),
        (ring.read, Range(SLOTS, (1,), 1, level=Level.SERIAL)),
        (ring.change, CHANGE),
    ]
    for call, argument in calls:
        nursery.start_soon(call, argument)
        await driver.wait(len(driver.sent) + 1)
    assert [(future.level, future.serial) for future in driver.sent] == expected
    for future in driver.sent:
        future.answer([{"[applied]": True}])
    await settled()
    await ring.close()


@pytest.mark.parametrize(
    ("error", "nodes", "kind"),
    [
        (UNAVAILABLE, 1, StoreRefused),
        (UNAVAILABLE, 2, StoreUnknown),
        (InvalidRequest("too large"), 1, StoreRefused),
        (Unauthorized("no"), 1, StoreRefused),
        (NOT_SENT, 0, StoreRefused),
        (NOT_SENT, 1, StoreUnknown),
        (TIMEOUT, 0, StoreUnknown),
        (WriteTimeout("slow", write_type=0), 1, StoreUnknown),
        (ConnectionShutdown("gone"), 1, StoreUnknown),
        (OverloadedErrorMessage(0x1001, "busy", None), 1, StoreUnknown),
        (OSError("cable"), 1, StoreUnknown),
        (KeyError("x"), 1, StoreUnknown),
    ],
)
def test_outcomes(error: Exception, nodes: int, kind: type[Exception]) -> None:
    assert type(outcome_of(error, nodes)) is kind
