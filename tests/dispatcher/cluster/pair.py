"""Both ends of a pair of links, by hand: what is on its way arrives when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.remote.asker import Asker
from pushlane_dispatcher.cluster.remote.shard import RemoteShard, Sent
from pushlane_dispatcher.cluster.serving import Serving
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.shard.sink import Attach, Attached
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.dispatcher.rig import TENANT, blocked

ROW = QueueRow(TENANT, "q", "Q", QueueConfig(), 1)
KEY = ShardKey("Q", 0)


def msg(body: bytes = b"1", **fields: Any) -> Message:
    return Message(body, 0, **fields)


class Lane:
    """One direction of one link."""

    waiting = 0

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self._calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def gather(self) -> None:
        """The next write is about to be."""
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def send(self, frame: bytes) -> None:
        self.frames.append(bytes(frame))

    async def room(self, below: int) -> None:
        await trio.lowlevel.checkpoint()


class FakeShard:
    """An open shard that answers when it is told to."""

    def __init__(self, key: ShardKey = KEY) -> None:
        self.key = key
        self.running = True
        self.stopped_by: Stop | None = None
        self.congested = False
        self.roomy = trio.Event()
        self.refusal: PushlaneError | None = None
        """What waiting for room ends with."""
        self.published: list[tuple[list[Message], Callable[..., None]]] = []
        self.settled: list[tuple[int, Any, Callable[..., None]]] = []
        self.sinks: dict[str, Any] = {}
        self.generations: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.known = True
        """It knows who resumes."""

    async def room(self, claims: Claims = ()) -> None:
        await self.roomy.wait()
        if self.refusal is not None:
            raise self.refusal

    def publish_soon(self, messages: list[Message], answer: Any, lanes: Any = None) -> None:
        self.published.append((messages, answer))

    def store(self, first: int = 1) -> None:
        """Answer the oldest publish."""
        messages, answer = self.published.pop(0)
        answer(PublishTicket([*range(first, first + len(messages))], None, None), None)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for messages, _ in self.published for message in messages]

    def attach(self, sink: Any, wish: Any, answer: Any) -> None:
        prefix = wish.prefix or f"p{len(self.sinks)}"
        self.sinks[prefix], self.generations[prefix] = sink, 1
        answer(Attached(prefix, 1, 1_000, wish.held if not wish.prefix else []), None)

    def resume(self, prefix: str, held: Any, sink: Any, answer: Any) -> None:
        if not self.known:
            answer(0, [], NotFound("nobody knows it"))
            return
        self.sinks[prefix] = sink
        self.generations[prefix] += 1
        answer(self.generations[prefix], [], None)

    def credit(self, prefix: str, sink: Any, credit: int, answer: Any = None) -> None:
        self.calls.append(("credit", prefix, credit))
        if answer is not None:
            answer()

    def settle(
        self, prefix: str, generation: int, act: Any, receipts: Any, answer: Any, *,
        silently: bool = False,
    ) -> None:  # fmt: skip
        self.settled.append((generation, receipts, answer))

    def durable(self) -> None:
        """Answer the oldest settle."""
        self.settled.pop(0)[2](SettleTicket(), None)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in ("detach", "unsubscribe", "end", "cut_off"):
            return lambda *args: self.calls.append((name, *args))
        raise AttributeError(name)

    def push(self, prefix: str, n: int, *bodies: bytes, again: bool = False) -> None:
        run = Run(4, n, n, True, 1, 1, n, 1_000, [msg(body) for body in bodies])
        self.sinks[prefix].deliver([run], again, len(bodies), 0)

    def stop(self, serving: Serving, reason: Stop = Stop.MOVED) -> None:
        """As a shard does that is over: who waits hears it, then those who use it."""
        self.running, self.stopped_by = False, reason
        for _, answer in self.published:
            answer(PublishTicket([], None, None), reason_of(reason))
        for prefix, sink in self.sinks.items():
            sink.ended(reason.code, reason.value, [(prefix, 1, 1)])
        self.sinks.clear()
        stopped: Any = self
        serving.stopped(stopped)


def reason_of(reason: Stop) -> PushlaneError:
    return Unavailable(reason.value, retry_ms=1_000)


class FakeHost:
    def __init__(self, nursery: trio.Nursery, *shards: Any) -> None:
        self.start_soon = nursery.start_soon
        self.shards = {shard.key: shard for shard in shards}
        self.opening: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def running(self, key: ShardKey) -> Any:
        return self.shards.get(key)

    async def open_for_peer(
        self, tenant: str, queue: str, key: ShardKey, hops: int, claims: Claims
    ) -> Any:
        await self.opening()
        return self.shards[key]


class Pair:
    """An asker, the end that serves it, and what is on its way on two lanes each way."""

    def __init__(self, host: Any, settings: ClusterSettings | None = None) -> None:
        settings = settings or ClusterSettings()
        self.asked = {"data": Lane(), "rest": Lane()}
        self.told = {"data": Lane(), "rest": Lane()}
        self.lost: list[tuple[RemoteShard, list[Sent]]] = []
        self.cuts: list[str] = []
        self.asker_wall = self.wall = 1_700_000_000_000
        """What time it is at either end."""
        self.asker = Asker(
            "b",
            self.asked["data"],
            self.asked["rest"],
            lambda: 0,
            lambda: self.asker_wall,
            self._lose,
            settings,
        )
        self.serving = Serving(
            host, self.told["data"], self.told["rest"], lambda: 0, lambda: self.wall, settings,
            30_000,
            self.cuts.append,
        )  # fmt: skip

    def _lose(self, shard: RemoteShard, sent: list[Sent]) -> None:
        self.lost.append((shard, sent))

    @property
    def ways(self) -> list[tuple[Lane, Callable[[bytes], None]]]:
        """Lanes on which something is, with who takes it."""
        for lane in (*self.asked.values(), *self.told.values()):
            lane.gather()
        found = [(lane, self.serving.take) for lane in self.asked.values()]
        found += [(lane, self.asker.take) for lane in self.told.values()]
        return [(lane, take) for lane, take in found if lane.frames]

    def arrive(self, lane: Lane) -> None:
        """All that is on its way on one lane."""
        take = self.serving.take if lane in self.asked.values() else self.asker.take
        lane.gather()
        while lane.frames:
            take(lane.frames.popleft())

    async def settle_down(self) -> None:
        """Until nothing is on its way."""
        await blocked()
        while self.ways:
            for lane, _ in self.ways:
                self.arrive(lane)
            await blocked()

    async def open(self, row: QueueRow = ROW, number: int = 0) -> RemoteShard:
        found: list[RemoteShard | frames.Moved] = []

        async def ask() -> None:
            found.append(await self.asker.open(row, number, 0, ()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await self.settle_down()
        (shard,) = found
        assert isinstance(shard, RemoteShard)
        return shard

    def over(self) -> None:
        """The links break."""
        for lane in (*self.asked.values(), *self.told.values()):
            lane.frames.clear()
        self.asker.over()
        self.serving.over()

    @property
    def kept(self) -> dict[str, int]:
        """What either end remembers."""
        tables: dict[str, Any] = {
            "opening": self.asker._opening,
            "shards": self.asker._shards,
            "requests": self.asker._requests,
            "subs": self.asker._subs,
            "served": self.serving._served,
            "sinks": self.serving._subs,
        }
        return {name: len(table) for name, table in tables.items() if table}


class Heard:
    """Answers, in the order in which they came."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, *told: Any) -> None:
        """Of several values the error, or else the first one."""
        error = told[-1] if len(told) > 1 else None
        self.all.append(error or told[0])


class Ear:
    """A sink that notes what it hears."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def deliver(self, runs: Any, again: bool, held: int, waiting: int) -> None:
        bodies = [message.body for run in runs for message in run.messages]
        self.said.append(("again" if again else "deliver", *bodies))

    def lost(self, receipts: Any, held: int, waiting: int) -> None:
        self.said.append(("lost", receipts))

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        self.said.append(("hungry", hungry))

    def holds(self, held: int, waiting: int) -> None:
        self.said.append(("holds", held))

    def ended(self, code: str, message: str, held: Any) -> None:
        self.said.append(("ended", code, held))


async def attach(pair: Pair, shard: Any, **options: Any) -> Ear:
    ear, answers = Ear(), Heard()
    shard.attach(ear, Attach("s", 10, **options), answers)
    await pair.settle_down()
    (attached,) = answers.all
    assert isinstance(attached, Attached)
    return ear
