"""Publishes that were under way when their shard went away."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.cluster.remote.shard import RemoteShard, Sent
from pushlane_dispatcher.cluster.repeats import Repeats
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.message import TRANSFER, Message, size_of
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.dispatcher.cluster.pair import Heard, msg
from tests.dispatcher.rig import TENANT


class Shard:
    """The next owner's."""

    def __init__(self) -> None:
        self.took: list[bytes] = []
        self.most = 1 << 30
        """How many publishes it takes until it stops."""

    def publish_soon(self, messages: list[Message], answer: Any, lanes: Any = None) -> None:
        if not self.most:
            raise Unsent("it has stopped")
        self.most -= 1
        self.took += [message.body for message in messages]
        answer(None, None)


def row(id: str = "Q", **config: Any) -> QueueRow:
    return QueueRow(TENANT, "q", id, QueueConfig(shards=2, **config), 1)


class Scene:
    def __init__(self, nursery: trio.Nursery, **settings: Any) -> None:
        self.shards = [Shard(), Shard()]
        self.row = row()
        self.fault: PushlaneError | None = None
        self.hangs = False
        self.opened = 0
        self.answers = Heard()
        self.repeats = Repeats(
            ClusterSettings(**settings), self.open, nursery.start_soon, lambda: 0
        )

    async def open(self, tenant: str, name: str) -> object:
        self.opened += 1
        await trio.lowlevel.checkpoint()
        if self.hangs:
            await trio.sleep_forever()
        if self.fault is not None:
            raise self.fault
        self.flush()
        return None

    def flush(self) -> None:
        shards: Any = self.shards
        self.repeats.flush(OpenQueue(self.row, shards, lambda: 0.5))

    def lose(self, *messages: Message, number: int = 0, of: QueueRow | None = None) -> None:
        """A shard has gone with these, each in a publish of its own."""
        asker: Any = None
        shard = RemoteShard(asker, 1, of or self.row, number)
        self.repeats.add(shard, [self.sent(one) for one in messages])

    def sent(self, message: Message, unsent: bool = False) -> Sent:
        return Sent([message], None, self.answers, size_of(message), unsent)

    @property
    def kept(self) -> tuple[Any, ...]:
        repeats = self.repeats
        return repeats._queues, repeats._driven, repeats._bytes


def counted(n: int) -> Message:
    return msg(b"%d" % n, producer="p", producer_seq=n)


async def test_they_go_to_the_next_owner_in_their_order(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.lose(*map(counted, (1, 2, 3)))
        scene.lose(counted(4), number=1)
        scene.lose(counted(5))
        assert scene.repeats._bytes == 5 * size_of(counted(1))
        await trio.sleep(1)
        assert [shard.took for shard in scene.shards] == [[b"1", b"2", b"3", b"5"], [b"4"]]
        assert (scene.answers.all, scene.kept) == ([None] * 5, ({}, set(), 0))
        assert (scene.opened, scene.repeats.repeated) == (1, 5)


async def test_what_may_not_be_repeated_is_unknown_and_what_was_not_taken_may(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        asker: Any = None
        plain = msg(b"plain")
        moved = msg(b"moved", dedup=f"{TRANSFER}x", producer="shard", producer_seq=1)
        scene.repeats.add(
            RemoteShard(asker, 1, scene.row, 0),
            [
                scene.sent(plain),
                scene.sent(msg(b"unsent"), unsent=True),
                scene.sent(msg(b"dedup", dedup="d")),
                scene.sent(moved),
            ],
        )
        (error,) = scene.answers.all
        assert isinstance(error, Unavailable)
        assert not isinstance(error, Unsent)
        await trio.sleep(1)
        assert scene.shards[0].took == [b"unsent", b"dedup", b"moved"]


async def test_their_bytes_are_bounded(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        size = size_of(counted(1))
        scene = Scene(nursery, repeat_bytes=2 * size)
        scene.lose(*map(counted, range(1, 6)))
        assert len(scene.answers.all) == 3
        assert scene.repeats._bytes == 2 * size
        await trio.sleep(1)
        assert scene.shards[0].took == [b"1", b"2"]
        assert scene.kept == ({}, set(), 0)


@pytest.mark.parametrize("hangs", [False, True])
async def test_nobody_waits_for_longer_than_promised(autojump_clock: Any, hangs: bool) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery, publish_ms=5_000)
        scene.row = row(dedup_window_ms=4_000)
        scene.hangs, scene.fault = hangs, Unavailable("nobody", retry_ms=1)
        scene.lose(msg(b"d", dedup="d"), counted(1))
        await trio.sleep(1.9)
        assert scene.answers.all == []
        await trio.sleep(0.3)
        assert len(scene.answers.all) == 1
        await trio.sleep(3)
        assert len(scene.answers.all) == 2
        assert not any(isinstance(one, Unsent) for one in scene.answers.all)
        assert scene.kept == ({}, set(), 0)


async def test_what_is_too_late_is_not_repeated_when_its_queue_opens(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.row, scene.hangs = row(dedup_window_ms=2_000), True
        scene.lose(msg(b"d", dedup="d"))
        await trio.lowlevel.checkpoint()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.9)
        scene.repeats._queues[TENANT, "q"][next(iter(scene.repeats._queues[TENANT, "q"]))][
            0
        ].until = trio.current_time()
        scene.flush()
        assert scene.shards[0].took == []
        assert [type(one) for one in scene.answers.all] == [Unavailable]
        nursery.cancel_scope.cancel()


async def test_a_shard_that_stops_again_gets_the_rest_when_it_is_back(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.shards[0].most = 2
        scene.lose(*map(counted, (1, 2, 3, 4)))
        await trio.sleep(0.01)
        assert scene.shards[0].took == [b"1", b"2"]
        assert scene.repeats._bytes == 2 * size_of(counted(1))
        scene.shards[0].most = 9
        await trio.sleep(1)
        assert scene.shards[0].took == [b"1", b"2", b"3", b"4"]
        assert (scene.answers.all, scene.kept) == ([None] * 4, ({}, set(), 0))


async def test_a_second_break_gives_nobody_more_time(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery, publish_ms=5_000)
        scene.fault = Unavailable("nobody", retry_ms=1)
        one = scene.sent(counted(1))
        asker: Any = None
        shard = RemoteShard(asker, 1, scene.row, 0)
        scene.repeats.add(shard, [one])
        until = one.until
        await trio.sleep(2)
        scene.repeats._queues.clear()  # as if it had been sent …
        scene.repeats.add(shard, [one])  # … and that one had gone, too
        assert one.until == until
        await trio.sleep(4)
        assert len(scene.answers.all) == 1


async def test_a_queue_that_was_made_again_gets_nothing_of_the_old_one(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.lose(counted(1))
        scene.lose(counted(2), of=row("R"))
        scene.row = row("R")
        await trio.sleep(1)
        assert scene.shards[0].took == [b"2"]
        assert [type(one) for one in scene.answers.all] == [NotFound, type(None)]
        assert scene.kept == ({}, set(), 0)


async def test_a_queue_that_is_deleted(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.fault = NotFound("there is no queue q")
        asker: Any = None
        shard = RemoteShard(asker, 1, scene.row, 0)
        scene.repeats.add(shard, [scene.sent(counted(1)), scene.sent(msg(), unsent=True)])
        await trio.sleep(1)
        assert [type(one) for one in scene.answers.all] == [Unavailable, NotFound]
        assert scene.kept == ({}, set(), 0)


async def test_one_driver_for_each_queue(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.lose(counted(1))
        await trio.sleep(0.001)
        scene.fault = NotFound("there is no queue q")
        scene.lose(counted(2))
        await trio.sleep(0.2)
        assert scene.opened == 2
        assert scene.kept == ({}, set(), 0)
