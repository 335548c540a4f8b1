"""A queue's limits are the queue's, however many shards it has."""

from typing import Any

import pytest
import trio

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.overflow import Use
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.queues.route import shard_of
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.shares import Shares, deal, expand, level, part_of
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    Gate,
    Rig,
    ScriptedStore,
    blocked,
    dispatching,
    memory_store,
    message,
    rig,
)
from tests.running import runners_of, stats_now

# The pure part


def test_what_is_free_goes_to_who_needs_it_and_the_rest_in_equal_parts() -> None:
    assert deal(100, [0, 0, 0, 0], [0] * 4, 0, 0) == [25, 25, 25, 25]
    assert deal(100, [0, 0, 0, 0], [0] * 4, 2, 90) == [3, 3, 92, 2]
    assert deal(100, [10, 60, 0, 0], [0] * 4, 1, 30) == [10, 90, 0, 0]


def test_who_can_let_nothing_go_keeps_it() -> None:
    used = [50, 45, 0]
    assert deal(100, used, used, 2, 10) == [50, 45, 5]
    assert deal(60, used, used, 2, 10) == used, "more than the limit: nobody gets anything"


def test_who_holds_the_most_makes_room() -> None:
    assert deal(100, [50, 50, 0], [0, 0, 0], 2, 1) == [49, 50, 1]
    assert deal(10, [50, 50, 4], [0, 0, 0], 0, 0) == [3, 4, 3]
    assert deal(100, [90, 10], [90, 0], 1, 5) == [90, 10]


@pytest.mark.parametrize("limit", [0, 1, 7, 100])
@pytest.mark.parametrize("used", [[0], [3, 4], [40, 0, 60], [100, 100], [5] * 9])
def test_shares_never_add_up_to_more_than_the_limit(limit: int, used: list[int]) -> None:
    for shard in range(len(used)):
        for needed in (0, 1, 50):
            shares = deal(limit, used, [0] * len(used), shard, needed)
            assert sum(shares) <= limit
            assert min(shares) >= 0
            kept = deal(limit, used, used, shard, needed)
            assert sum(kept) <= max(limit, sum(used))
    assert sum(level(limit, used, [0] * len(used))) == min(limit, sum(used))


def test_the_limit_doubles_at_eighty_percent_up_to_the_quota() -> None:
    assert expand(10, 8, 10, 35) == 10
    assert expand(10, 9, 10, 35) == 20
    assert expand(20, 29, 10, 35) == 35
    assert expand(0, 1, 0, 35) == 2


def test_it_shrinks_again() -> None:
    assert expand(160, 1, 10, 1_000) == 10
    assert expand(160, 32, 10, 1_000) == 160


def test_a_quota_below_the_limit_does_not_lower_it() -> None:
    assert expand(10, 11, 10, 5) == 10


class Holder:
    """A shard that holds so much, and keeps to its share."""

    def __init__(self, messages: int) -> None:
        self.shares: Shares | None = None
        self.loose = False
        """What it holds can go."""
        self.messages = messages
        self.share = 0
        self.dealt = 0

    @property
    def use(self) -> Use:
        return Use(self.messages, 0, 0 if self.loose else self.messages, 0)

    def allot(self, messages: int, size: int | None) -> None:
        self.share = messages
        self.dealt += 1


def sharing(holders: list[Holder], config: QueueConfig, most: int) -> Shares:
    """Of a queue of which all these are open."""
    shares = Shares(config, most)
    for number, holder in enumerate(holders):
        shares.join(number, holder)
    return shares


def test_what_goes_from_a_queue_above_its_limit_makes_no_room() -> None:
    holders = [Holder(10), Holder(10)]
    shares = sharing(holders, QueueConfig(shards=2, max_messages=30), 0)
    shares.configure(QueueConfig(shards=2, max_messages=5))
    assert [holder.share for holder in holders] == [10, 10], "what is stored stays"
    holders[0].messages = 4
    shares.before(0, [Message(b"x", 0)])
    assert holders[0].share == 4, "14 are more than 5"
    holders[0].messages = holders[1].messages = 2
    shares.before(0, [Message(b"x", 0)])
    assert holders[0].share == 3


def _expanding() -> tuple[list[Holder], Shares]:
    holders = [Holder(0) for _ in range(4)]
    config = QueueConfig(shards=4, max_messages=1_000, auto_expand=True)
    return holders, sharing(holders, config, 4_000)


def test_a_limit_that_may_expand_is_dealt_anew_only_when_it_may_change() -> None:
    holders, shares = _expanding()
    for number in range(3_200):
        shares.before(number % 4, [Message(b"x", 0)])
        holders[number % 4].messages += 1
        limit = sum(holder.share for holder in holders)
        assert limit == (1_000 if number < 800 else 2_000 if number < 1_600 else 4_000)
    assert holders[0].dealt < 200
    for number in range(3_200, 4_000):
        shares.before(number % 4, [Message(b"x", 0)])
        holders[number % 4].messages += 1
    assert sum(holder.share for holder in holders) == 4_000, "the quota"


def test_it_shrinks_when_the_next_message_comes() -> None:
    holders, shares = _expanding()
    shares.before(0, [Message(b"x", 0)] * 3_000)
    holders[0].messages = 3_000
    assert sum(holder.share for holder in holders) == 4_000
    holders[0].messages = 799
    shares.before(0, [Message(b"x", 0)])
    assert sum(holder.share for holder in holders) == 4_000
    holders[0].messages = 798
    shares.before(0, [Message(b"x", 0)])
    assert sum(holder.share for holder in holders) == 2_000


# Of a queue of which not all shards are open here


@pytest.mark.parametrize("limit", [0, 3, 10, 101])
@pytest.mark.parametrize("shards", [1, 2, 7, 256])
def test_equal_parts_add_up_to_the_limit(limit: int, shards: int) -> None:
    parts = [part_of(limit, number, shards) for number in range(shards)]
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1


def put(shares: Shares, holder: Holder, number: int, count: int = 1) -> bool:
    """Publish; whether there was room."""
    shares.before(number, [Message(b"x", 0)] * count)
    fits = holder.messages + count <= holder.share
    if fits:
        holder.messages += count
    shares.after()
    return fits


@pytest.mark.parametrize("auto_expand", [False, True])
def test_several_owners_hold_no_more_than_the_limit(auto_expand: bool) -> None:
    config = QueueConfig(shards=7, max_messages=50, auto_expand=auto_expand)
    owners: list[tuple[Shares, dict[int, Holder]]] = []
    for numbers in ((0, 3), (1, 2, 4, 6), (5,)):
        shares, holders = Shares(config, 200), {number: Holder(0) for number in numbers}
        for number, holder in holders.items():
            shares.join(number, holder)
        owners.append((shares, holders))
    for shares, holders in owners:
        for number, holder in holders.items():  # the first one takes all of its owner's part
            while put(shares, holder, number):
                pass
    held = [sum(holder.messages for holder in holders.values()) for _, holders in owners]
    assert sum(held) == 200 if auto_expand else sum(held) == 50
    assert held[1] == pytest.approx(2 * held[0], abs=2)


def test_nothing_is_dealt_until_all_are_here_or_something_is_published() -> None:
    config = QueueConfig(shards=3, max_messages=90, overflow="drop_oldest")
    shares, holders = Shares(config, 0), [Holder(60), Holder(0), Holder(0)]
    shares.join(0, holders[0])
    shares.join(1, holders[1])
    assert [holder.dealt for holder in holders] == [0, 0, 0]
    shares.join(2, holders[2])
    assert sum(holder.share for holder in holders) == 90
    assert holders[0].share >= 60


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_what_is_above_the_part_of_those_here_stays(overflow: Any) -> None:
    config = QueueConfig(shards=4, max_messages=100, overflow=overflow)
    shares, holders = Shares(config, 0), [Holder(60), Holder(5)]
    for number, holder in enumerate(holders):
        holder.loose = overflow != "reject"
        shares.join(number, holder)
    shares.before(1, [Message(b"x", 0)])
    assert sum(holder.share for holder in holders) == (65 if overflow == "reject" else 66)
    assert holders[0].share == 60, "it is not known yet that something must go"
    if overflow == "drop_oldest":
        holders[1].messages += 1
        shares.after()
        assert [holder.share for holder in holders] == [60, 6]
        holders[0].messages, holders[1].messages = 50, 5
        shares.before(1, [Message(b"x", 0)])
        assert sum(holder.share for holder in holders) == 56, "what has gone makes no room"


def test_who_leaves_takes_its_part_along_and_the_next_publish_deals_again() -> None:
    shares, holders = (
        Shares(QueueConfig(shards=4, max_messages=100), 0),
        [Holder(0) for _ in "1234"],
    )
    for number, holder in enumerate(holders):
        shares.join(number, holder)
    assert put(shares, holders[0], 0, 80)
    holders[0].messages = 0
    assert not shares.leave(3)
    assert holders[3].shares is None
    assert not put(shares, holders[0], 0, 80)
    assert put(shares, holders[0], 0, 75)
    assert [shares.leave(number) for number in (1, 0, 2)] == [False, False, True]


def test_only_who_has_to_asks_with_every_publish() -> None:
    shares, holder = Shares(QueueConfig(max_messages=5), 10), Holder(0)
    shares.join(0, holder)
    seen = [(holder.shares, holder.share)]
    for version, (limit, auto_expand) in enumerate([(5, True), (7, False)], 2):
        config = QueueConfig(max_messages=limit, auto_expand=auto_expand)
        shares.configure(config, version)
        seen.append((holder.shares, holder.share))
        assert shares.version == version
    assert seen == [(None, 5), (shares, 5), (None, 7)]


# In a queue


async def publish(r: Rig, count: int, key: str | None = None) -> int:
    """How many were taken."""
    taken = 0
    for _ in range(count):
        publication = await r.queue.publish([message(key=key)])
        taken += not publication.failed
    return taken


async def test_four_shards_with_a_limit_of_a_hundred_store_a_hundred() -> None:
    async with rig(shards=4, max_messages=100) as r:
        for n in range(150):
            await r.queue.publish([message(key=f"k{n}")])
        assert stats_now(r.queue).stored == 100


async def test_a_burst_is_refused_only_when_the_queue_is_full() -> None:
    async with rig(shards=4, max_messages=100) as r:
        publication = await r.queue.publish([message(key=f"k{n}") for n in range(150)])
        assert (len(publication.failed), stats_now(r.queue).stored) == (50, 100)


async def test_one_shard_may_have_it_all() -> None:
    async with rig(shards=4, max_messages=100) as r:
        assert await publish(r, 120, key="same") == 100


async def test_what_is_acked_elsewhere_makes_room_here() -> None:
    async with rig(shards=4, max_messages=20) as r:
        assert await publish(r, 30, key="same") == 20
        assert await publish(r, 1, key="other") == 0
        await r.dispatcher.purge(TENANT, "q")
        assert await publish(r, 30, key="other") == 20


async def test_bytes_are_the_queues_too() -> None:
    size = size_of(message(b"x" * 100, key="k1"))
    async with rig(shards=4, max_bytes=50 * size) as r:
        for n in range(90):
            await r.queue.publish([message(b"x" * 100, key=f"k{n % 10}")])
        assert stats_now(r.queue).stored == 50


async def test_an_empty_shard_takes_messages_though_others_fill_the_queue() -> None:
    async with rig(shards=4, max_messages=20, overflow="drop_oldest") as r:
        taken = 0
        for n in range(60):
            publication = await r.queue.publish([message(b"%d" % n)])
            taken += not publication.failed
        assert taken == 60
        for n in range(40):
            assert not (await r.queue.publish([message(key=f"k{n}")])).failed
            await blocked()
            assert stats_now(r.queue).stored == 20


async def test_a_repeat_drops_nothing() -> None:
    async with rig(shards=4, max_messages=8, overflow="drop_oldest") as r:
        await r.queue.publish([message(dedup=f"d{n}") for n in range(8)])
        await r.queue.publish([message(dedup=f"d{n}") for n in range(8)])
        await blocked()
        assert (stats_now(r.queue).stored, stats_now(r.queue).dropped) == (8, 0)


async def test_a_limit_may_expand_and_be_changed() -> None:
    bounds = Bounds(max_limit=35)
    async with rig(shards=2, max_messages=10, auto_expand=True, bounds=bounds) as r:
        assert await publish(r, 50) == 35
        row = await r.dispatcher.get(TENANT, "q")
        config = type(row.config)(shards=2, max_messages=40)
        await r.dispatcher.update(TENANT, "q", config)
        assert await publish(r, 50) == 5


@pytest.mark.parametrize("shards", [1, 2])
async def test_what_is_acked_of_a_queue_above_its_lowered_limit_makes_no_room(shards: int) -> None:
    async with rig(shards=shards, max_messages=9) as r:
        assert await publish(r, 9) == 9
        config = QueueConfig(shards=shards, max_messages=5)
        await r.dispatcher.update(TENANT, "q", config)
        (holder,) = [runner for runner in runners_of(r.queue) if runner.stats().ready]
        consumer = Consumer(holder, credit=1)
        await consumer.got(1)
        await consumer.ack()
        consumer.leave()
        await blocked()
        assert await publish(r, 5) == 0
        await r.dispatcher.purge(TENANT, "q")
        assert await publish(r, 9) == 5


async def test_a_lowered_limit_takes_effect_at_once_where_the_oldest_may_go() -> None:
    async with rig(shards=3, max_messages=90, overflow="drop_oldest") as r:
        await r.queue.publish([message(key=f"k{n}") for n in range(90)])
        row = await r.dispatcher.get(TENANT, "q")
        config = type(row.config)(shards=3, max_messages=30, overflow="drop_oldest")
        await r.dispatcher.update(TENANT, "q", config)
        await blocked()
        assert stats_now(r.queue).stored == 30


async def _fill_one_shard(dispatcher: Dispatcher) -> int:
    """Sixty-three messages of a hundred, all in one shard, one of which can't leave. Its number."""
    config = QueueConfig(shards=4, max_messages=100, overflow="drop_oldest")
    await dispatcher.create(TENANT, "q", config)
    await dispatcher.create(TENANT, "q.dead", QueueConfig(dead_letter="", max_messages=1))
    await dispatcher.publish(TENANT, "q.dead", [message(b"full")])
    await dispatcher.publish(TENANT, "q", [message(key="same") for _ in range(62)])
    expires_at = dispatcher.clock.wall() + 60_000
    plain = shard_of(message(key="same"), 4, lambda: 0.0)
    dedup = next(
        str(n) for n in range(99) if shard_of(message(dedup=str(n)), 4, lambda: 0.0) == plain
    )
    await dispatcher.publish(TENANT, "q", [message(dedup=dedup, expires_at=expires_at)])
    return plain


async def test_a_shard_that_is_opened_alone_drops_nothing_of_a_queue_with_room() -> None:
    store, settings = memory_store(), Settings(due_ms=1_000, idle_ms=600_000)
    async with dispatching(store, settings=settings) as dispatcher:
        await _fill_one_shard(dispatcher)
    async with dispatching(store, settings=settings) as dispatcher:
        await trio.sleep(90)
        assert dispatcher.due.opened == 1
        queue = await dispatcher.open(TENANT, "q")
        await blocked()
        stats = stats_now(queue)
        assert (stats.leaving, stats.stored, stats.dropped) == (1, 63, 0)


async def test_a_shard_that_is_being_closed_drops_nothing_of_a_queue_with_room() -> None:
    store, bounds = ScriptedStore(), Bounds(transfer_retry_max_ms=1_000)
    async with dispatching(store, bounds=bounds) as dispatcher:
        number = await _fill_one_shard(dispatcher)
        runner = runners_of(await dispatcher.open(TENANT, "q"))[number]
        await trio.sleep(90)
        assert runner.stats().leaving == 1
        gate = Gate()
        store.script.add("append", gate)
        runner.publish_soon([message(key="same")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.close)
            await trio.sleep(3)
            stats = runner.stats()
            gate.released.set()
        assert (stats.leaving, stats.stored, stats.dropped) == (1, 63, 0)


@pytest.mark.parametrize("config", [{}, {"overflow": "drop_oldest"}, {"auto_expand": True}])
async def test_a_publish_to_one_shard_wakes_no_other(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = Bounds(max_limit=20)
    async with rig(shards=4, max_messages=20, bounds=bounds, **config) as r:
        await publish(r, 20, key="same")
        await blocked()
        woken: list[int] = []
        wake = Engine.wake

        def noted(self: Engine) -> None:
            woken.append(self.shard.key.shard)
            wake(self)

        monkeypatch.setattr(Engine, "wake", noted)
        await publish(r, 5, key="same")
        assert len(set(woken)) <= 1


async def test_a_shard_that_is_open_alone_takes_its_part_and_all_together_the_rest() -> None:
    store = memory_store()
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q", QueueConfig(shards=4, max_messages=100))
        runner = await dispatcher._shards.open(row, 1)
        ticket = await runner.publish([message() for _ in range(40)])
        assert len(ticket.failed) == 15
        assert (await runner.publish([message()])).failed
        assert runner.stats().stored == 25
        queue = await dispatcher.open(TENANT, "q")
        publication = await queue.publish([message(key=f"k{n}") for n in range(100)])
        assert (len(publication.failed), stats_now(queue).stored) == (25, 100)


async def test_a_shard_that_opens_with_a_newer_row_brings_its_limits() -> None:
    async with dispatching() as dispatcher:
        old = await dispatcher.create(TENANT, "q", QueueConfig(shards=2, max_messages=10))
        first = await dispatcher._shards.open(old, 0)
        config = QueueConfig(shards=2, max_messages=40)
        await dispatcher._queues.update(TENANT, "q", config)
        second = await dispatcher._shards.open(old, 1)
        for _ in range(50):
            await second.publish([message()])
        assert second.stats().stored == 40
        assert first.shares is second.shares
        dispatcher._shards.configure(old)
        assert second.shares is not None
        assert second.shares.version > old.version
        await first.close()
        await second.close()
        await blocked()
        assert dispatcher._shards._shares == {}
