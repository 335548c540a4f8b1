"""A door: what one caller asks of queues, by name."""

from __future__ import annotations

from typing import Any

import trio

from pushlane.wire.errors import NotFound, PushlaneError, Throttled
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.feed import Spec
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    TENANT,
    Gate,
    ScriptedStore,
    blocked,
    dispatching,
    message,
    rig,
)
from tests.dispatcher.subscriber import Subscriber, door_of, settle, subscribe

MADE = Caller(TENANT, template=QueueConfig(lease_ms=5_000))


class Answers:
    """Of publishes, in the order in which they came."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Publication | None, PushlaneError | None]] = []

    def of(self, name: str) -> Any:
        def answer(publication: Publication | None, error: PushlaneError | None = None) -> None:
            self.found.append((name, publication, error))

        return answer

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.found]


def made(dispatcher: Dispatcher) -> Door:
    def failed(error: Exception) -> None:
        raise error

    return dispatcher.door(MADE, failed)


async def test_an_open_queue_takes_a_publish_within_the_call() -> None:
    async with rig() as r:
        await r.dispatcher.open(TENANT, "q", claims=())
        door, answers = door_of(r.dispatcher), Answers()
        door.publish("q", [message(b"1")], None, answers.of("q"))
        assert r.runner.stats().pending == 1
        await blocked()
        ((_, publication, error),) = answers.found
        assert error is None
        assert publication is not None
        assert (len(publication.ids), publication.failed) == (1, {})


async def test_a_queue_that_is_not_open_is_opened_and_what_follows_waits() -> None:
    store, gate = ScriptedStore(), Gate()
    async with dispatching(store) as dispatcher:
        await dispatcher.ensure(TENANT, "slow", QueueConfig())
        await dispatcher.ensure(TENANT, "q", QueueConfig())
        await dispatcher.open(TENANT, "q", claims=())
        door, answers = door_of(dispatcher), Answers()
        store.script.add("read_queue", gate)
        door.publish("slow", [message(b"1")], None, answers.of("first"))
        await gate.entered.wait()
        door.publish("slow", [message(b"2")], None, answers.of("second"))
        door.publish("q", [message(b"3")], None, answers.of("other"))
        await blocked()
        assert answers.names == ["other"]
        gate.released.set()
        await door.done()
        await blocked()
        assert answers.names == ["other", "first", "second"]
        bodies = [
            found.message.body for found in (await dispatcher.peek(TENANT, "slow", 9)).messages
        ]
        assert bodies == [b"1", b"2"]


async def test_a_publish_of_nothing_asks_for_the_queue_all_the_same() -> None:
    async with dispatching() as dispatcher:
        answers = Answers()
        for door in (made(dispatcher), made(dispatcher)):
            door.publish("q", [], None, answers.of("q"))
            await door.done()
        assert answers.found == [("q", None, None)] * 2
        assert (await dispatcher.get(TENANT, "q")).config.lease_ms == 5_000
        door_of(dispatcher).publish("other", [], None, answers.of("other"))
        await blocked()
        assert isinstance(answers.found[-1][2], NotFound)


async def test_what_is_parked_is_refused_once_its_caller_has_gone() -> None:
    async with dispatching() as dispatcher:
        door, answers, sink = made(dispatcher), Answers(), Subscriber()
        door.publish("q", [message(b"1")], None, answers.of("q"))
        door.subscribe(Spec(TENANT, "q", "s"), sink, sink.subscribed)
        door.closed = True
        await door.done()
        assert [error and error.code for _, _, error in answers.found] == ["unavailable"]
        assert sink.error is not None
        assert (await dispatcher.stats(TENANT, "q")).stored == 0


async def test_who_may_not_subscribe_is_told_so() -> None:
    async with rig(bounds=Bounds(subscriptions=1)) as r:
        await subscribe(r.dispatcher)
        sink = Subscriber()
        door = door_of(r.dispatcher)
        door.subscribe(Spec(TENANT, "q", "s"), sink, sink.subscribed)
        door.subscribe(Spec(TENANT, "other", "s"), sink, sink.subscribed)
        await door.done()
        assert isinstance(sink.error, NotFound)
        door.subscribe(Spec(TENANT, "q", "s"), sink, sink.subscribed)
        assert isinstance(sink.error, Throttled)


async def test_receipts_are_settled_by_name() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        it = await subscribe(r.dispatcher, session="http:me", credit=2)
        await r.publish(b"1", b"2")
        await blocked()
        first, second = it.receipts
        assert (await settle(r.dispatcher, ACK, first, ("p", 1, 3))).lost == [("p", 1, 3)]
        assert (await settle(r.dispatcher, ACK, first)).duplicate == [first]
        missing = await settle(r.dispatcher, ACK, second, queue="other")
        assert isinstance(missing.error, NotFound)
        refused = await settle(r.dispatcher, Act("nack", delay_ms=1 << 50), second)
        assert refused.error is not None
        assert refused.error.code == "bad_request"


async def test_a_settle_waits_for_its_queue_to_open() -> None:
    async with rig() as r:
        await r.publish(b"1")
        await r.runner.close()
        found = await settle(r.dispatcher, ACK, ("p~0", 1, 2))
        assert (found.lost, found.error) == ([("p~0", 1, 2)], None)


async def test_bugs_are_told() -> None:
    bugs: list[Exception] = []
    async with dispatching() as dispatcher:
        door = dispatcher.door(MADE, bugs.append)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        door.publish("q", [], None, broken)
        with trio.fail_after(1):
            await door.done()
    assert [type(bug) for bug in bugs] == [ZeroDivisionError]
