"""Whatever is asked of a queue's shards is answered the same when they are far away."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, get_args
from unittest.mock import patch

import msgspec
import pytest
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from pushlane.wire.errors import BadRequest, PushlaneError
from pushlane_dispatcher.browsing import lookup
from pushlane_dispatcher.browsing.all_shards import ask_each, stats_of
from pushlane_dispatcher.browsing.backlog import Cursor, peek
from pushlane_dispatcher.browsing.dropping import BucketName, drop_archived
from pushlane_dispatcher.browsing.question import (
    AnyQuestion,
    FlushUsage,
    ListConsumers,
    Peek,
    Purge,
    answer_type,
)
from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.browsing.redrive_call import redrive
from pushlane_dispatcher.browsing.span import Span
from pushlane_dispatcher.browsing.standing import standing_of
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.message import Dead
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    START,
    TENANT,
    Consumer,
    blocked,
    dispatching,
    memory_store,
    message,
)
from tests.running import runners_of

BOUNDS = Bounds(bucket_messages=4, segment_messages=2, window_messages=4, leaving=6)
HOUR = 3_600_000


class FarShard:
    """One that is asked over a wire."""

    def __init__(self, shard: Any) -> None:
        self.key = shard.key
        self.asked: list[str] = []
        self._shard = shard

    async def ask(self, question: Any) -> Any:
        self.asked.append(type(question).__name__)
        sent = msgspec.msgpack.encode(question)
        answer = await self._shard.ask(msgspec.msgpack.decode(sent, type=AnyQuestion))
        packed = msgspec.msgpack.encode(answer)
        return msgspec.msgpack.decode(packed, type=answer_type(type(question)))


class FarQueue:
    def __init__(self, queue: OpenQueue) -> None:
        self.row = queue.row
        self.shards = [FarShard(shard) for shard in queue.shards]


def near(queue: OpenQueue) -> Any:
    return queue


async def fill(dispatcher: Dispatcher) -> tuple[OpenQueue, list[str]]:
    """A queue of three shards with everything in it; ids in the order of what was published."""
    config = QueueConfig(
        shards=3, dead_letter="", archive="parquet", backoff_base_ms=HOUR, backoff_max_ms=HOUR
    )
    await dispatcher.create(TENANT, "q.dead", config)
    await dispatcher.create(TENANT, "q", QueueConfig(max_messages=1_000))
    queue = await dispatcher.open(TENANT, "q.dead")
    ids: list[str] = []
    for number in range(60):
        at = START + HOUR if number % 7 == 6 else 0
        dead = Dead("rejected", "q", f"id-{number}", 1, None, START)
        sent = message(b"%d" % number, not_before=at, dedup=str(number), dead=dead)
        publication = await queue.publish([sent], [7 if number % 5 == 0 else 4])
        ids += [id for id in publication.ids if id]
        await trio.sleep(0.01)
    for runner in runners_of(queue):
        consumer = Consumer(runner, credit=6, session=f"worker-{runner.key.shard}")
        await consumer.got(6)
        consumer.set_credit(0)
        prefix = consumer.sub.prefix
        consumer.settle(ACK, [(prefix, 1, 4)])
        consumer.settle(Act("nack", error="oops"), [(prefix, 5, 5)])
    await blocked()
    assert len(ids) == 60
    return queue, ids


async def told(answer: Any) -> Any:
    """What it answers, or how it failed."""
    try:
        return await answer
    except PushlaneError as error:
        return error.code, error.message, error.retry_ms


async def looks(queue: Any, ids: list[str]) -> list[Any]:
    found: list[Any] = [
        await stats_of(queue),
        await standing_of(queue, START),
        await ask_each(queue.shards, lambda shard: shard.ask(ListConsumers())),
    ]
    after: str | None = ""
    while after is not None:
        page = await peek(queue, 7, after, 700)
        found.append([(page.id(one), one) for one in page.messages])
        after = page.after(len(page.messages))
    for id in [*ids, ids[0] + "0", "nonsense"]:
        found += [await told(lookup.explain(queue, id)), await told(lookup.find(queue, id))]
    return found


WANTED: list[dict[str, Any]] = [
    {"max": 100, "targets": ("other",)},
    {"max": 100, "dry_run": True},
    {"max": 5, "rate": 100},
]


async def orders(queue: Any, ids: list[str], names: list[BucketName]) -> list[Any]:
    found: list[Any] = [await told(lookup.cancel(queue, id)) for id in ids[:14]]
    found.append(await drop_archived(queue, names))
    after: str | None = ""
    found += [await told(redrive(queue, Redrive(budget_ms=1_000, **how))) for how in WANTED]
    while after is not None:
        done = await redrive(queue, Redrive(max=8, budget_ms=1_000), after)
        found.append(done)
        after = done.next
    found.append(await ask_each(queue.shards, lambda shard: shard.ask(FlushUsage())))
    found.append(await ask_each(queue.shards, lambda shard: shard.ask(Purge())))
    await trio.sleep(600)
    found.append(await drop_archived(queue, names))
    return found


async def bucket_names(dispatcher: Dispatcher, queue: OpenQueue) -> list[BucketName]:
    found: list[BucketName] = []
    for shard in queue.shards:
        outline = await dispatcher._context.store.outline(shard.key)
        found += [BucketName(shard.key.shard, *bucket.key) for bucket in outline.buckets]
    return found


async def world(through: Callable[[OpenQueue], Any], asked: set[str]) -> list[Any]:
    """Everything that is asked and ordered in one life of a dispatcher."""
    async with dispatching(memory_store(), bounds=BOUNDS) as dispatcher:
        opened, ids = await fill(dispatcher)
        queue = through(opened)
        found: list[Any] = [await looks(queue, ids)]
        names = await bucket_names(dispatcher, opened)
        found += [await orders(queue, ids, names), await looks(queue, ids)]
        found.append(await dispatcher.stats(TENANT, "q"))
        if isinstance(queue, FarQueue):
            asked.update(name for shard in queue.shards for name in shard.asked)
        return found


def play(through: Callable[[OpenQueue], Any], asked: set[str]) -> list[Any]:
    """In a trio that does the same each time."""
    with (
        patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(scheduler, "_r", Random(1)),
    ):
        return trio.run(world, through, asked, clock=MockClock(autojump_threshold=0))


def test_answers_are_the_same_from_far_away() -> None:
    asked: set[str] = set()
    direct, far = play(near, asked), play(FarQueue, asked)
    assert far == direct
    assert asked == {type.__name__ for type in get_args(AnyQuestion)}
    before, done, after, redriven = direct
    assert (before[0].stored, before[0].retrying, before[0].leased) == (48, 3, 3)
    assert done[:14].count(None) == 2, "the delayed ones of these"
    assert (done[14].dropped, len(done[14].kept)) == ([], len(done[-1].dropped + done[-1].kept))
    assert len(done[-1].dropped) > 5
    assert done[15][0] == "forbidden"
    assert done[16].count > 20
    assert done[17].count == 5
    assert redriven.stored == done[16].count
    assert after[0].ready == 0


async def test_the_first_error_of_many_shards_comes_through() -> None:
    async with dispatching(memory_store(), bounds=BOUNDS) as dispatcher:
        queue, _ = await fill(dispatcher)
        assert len(await ask_each(queue.shards, lambda shard: shard.ask(Peek(1)))) == 3
        nowhere = Peek(1, spans=[Span(1, 9, 0, 5)])
        with pytest.raises(BadRequest, match="start without it"):
            await ask_each(queue.shards, lambda shard: shard.ask(nowhere))


async def test_answers_stand_in_the_order_of_the_shards() -> None:
    async def ask(number: int) -> int:
        await trio.sleep(5 - number)
        return number

    assert await ask_each(range(5), ask) == [0, 1, 2, 3, 4]


async def test_a_redrive_from_a_lane_that_is_not_there_sends_nothing() -> None:
    async with dispatching(memory_store(), bounds=BOUNDS) as dispatcher:
        queue, _ = await fill(dispatcher)
        forged = Cursor(queue.row.id, [Span(0, 4, 0, 1 << 60), Span(1, 9, 0, 1)]).text()
        assert forged is not None
        with pytest.raises(BadRequest, match="start without it"):
            await redrive(queue, Redrive(max=9, budget_ms=1_000), forged)
        await trio.sleep(1)
        assert (await dispatcher.stats(TENANT, "q")).stored == 0
