"""What the shell's tests are made of: a store that follows a script, consumers, a dispatcher.

All of it runs on trio's mock clock: the wall clock follows it, so a minute passes in no time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.subscription import ANYBODY, Subscription
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.sink import Attach, Attached, SettleAnswer
from pushlane_dispatcher.waiter import Waiter
from pushlane_leases.memory import LeaseTable, MemoryLeases
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.interface import Outcome
from pushlane_storage.memory import MemoryStore, MemoryTables
from pushlane_storage.message import Message
from pushlane_storage.outcome import outcome_of
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.settlement import Settlement
from tests.running import runners_of

START = 1_700_000_000_000
TENANT = "default"

Call = Callable[[], Awaitable[Any]]
Step = Callable[[Call], Awaitable[Any]]


def mock_clock() -> Clock:
    """A wall clock that goes with the monotonic one."""
    return Clock(lambda: START / 1000 + trio.current_time())


# Steps: what becomes of one call of a store or cache


def fail(error: Exception) -> Step:
    """Raise, and do nothing."""

    async def step(_: Call) -> Any:
        await trio.lowlevel.checkpoint()
        raise error

    return step


def fail_after(error: Exception) -> Step:
    """Do it, then raise all the same."""

    async def step(call: Call) -> Any:
        await call()
        raise error

    return step


def answer(value: Any) -> Step:
    async def step(_: Call) -> Any:
        await trio.lowlevel.checkpoint()
        return value

    return step


async def go(call: Call) -> Any:
    """Nothing unusual."""
    return await call()


async def hang(_: Call) -> Any:
    await trio.sleep_forever()


class Gate:
    """A step that waits for its release."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.released = trio.Event()

    async def __call__(self, call: Call) -> Any:
        self.entered.set()
        await self.released.wait()
        return await call()


class Script:
    """Steps by the name of the method; without one, calls go through. All calls are noted."""

    def __init__(self, actor: object, names: tuple[str, ...] = ()) -> None:
        self.steps: dict[str, deque[Step]] = defaultdict(deque)
        self.always: dict[str, Step] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.follow(actor, **{name: name for name in names})

    def follow(self, actor: object, **methods: str) -> None:
        """Each by the name that it has in the script."""
        for name, method in methods.items():
            setattr(actor, method, partial(self._play, name, getattr(actor, method)))

    async def _play(self, name: str, real: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        self.calls.append((name, args))
        step = self.steps[name].popleft() if self.steps[name] else self.always.get(name, go)
        return await step(partial(real, *args))

    def add(self, name: str, *steps: Step) -> None:
        self.steps[name].extend(steps)

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args in self.calls if called == name]


def memory_tables() -> MemoryTables:
    """Fresh tables. Queue ids are the same in every run, and with them who shares a slot."""
    return MemoryTables(randbytes=Random(0).randbytes)


def memory_store() -> MemoryStore:
    return MemoryStore(memory_tables())


class ScriptedStore(MemoryStore):
    def __init__(self, tables: MemoryTables | None = None) -> None:
        super().__init__(memory_tables() if tables is None else tables)
        self.script = Script(
            self,
            (
                "append", "settle", "mark_bucket", "drop", "write_seal", "write_note", "outline",
                "heads", "segments", "messages", "settlements", "due",
            ),
        )  # fmt: skip
        self.script.follow(
            self.ownership, claim="claim", next_epoch="next_epoch", due_shards="due_shards"
        )
        self.script.follow(
            self.catalog, create_queue="create", read_queue="read", list_queues="list",
            update_queue="update", mark_deleting="mark_deleting", remove_queue="remove",
        )  # fmt: skip
        self.script.follow(self.usage, put_usage="put", find_usage="find", usage="read")

    async def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        """What `append_soon` does after the script's steps, of which each may wait."""
        await outcome_of(partial(super().append_soon, shard, segment, opens))

    async def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        await outcome_of(partial(super().settle_soon, shard, rows))

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        self._play_soon(partial(self.append, shard, segment, opens), outcome)

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        self._play_soon(partial(self.settle, shard, rows), outcome)

    def _play_soon(self, call: Call, outcome: Outcome) -> None:
        trio.lowlevel.spawn_system_task(self._call_back, call, outcome)

    async def _call_back(self, call: Call, outcome: Outcome) -> None:
        try:
            await call()
        except Exception as error:
            outcome(error)
        else:
            outcome(None)


class ScriptedLeases(MemoryLeases):
    def __init__(self, table: LeaseTable | None = None) -> None:
        super().__init__(table)
        self.script = Script(self, ("claim", "grant", "release", "remember", "recall"))


class Consumer:
    """A sink that notes everything, and acks at once if told so."""

    def __init__(self, runner: ShardRunner, credit: int = 100, **options: Any) -> None:
        self.acking = options.pop("acking", False)
        self.runner = runner
        self.runs: list[Run] = []
        self.again: list[Run] = []
        self.lost_receipts: list[ReceiptRun] = []
        self.hunger: list[bool] = []
        self.held = 0
        """As it was last told."""
        self.had: list[ReceiptRun] | None = None
        """What it had when its shard ended."""
        self.end: tuple[str, str] | None = None
        self._news = trio.Event()
        self.attach(Attach(options.pop("session", "s"), credit, **options))

    def attach(self, wish: Attach, runner: ShardRunner | None = None) -> list[ReceiptRun]:
        """What it lists but no longer holds."""
        self.runner = runner or self.runner
        answers: list[Attached] = []

        def answer(attached: Attached | None, error: PushlaneError | None) -> None:
            if error is not None:
                raise error
            assert attached is not None
            answers.append(attached)

        self.runner.attach(self, wish, answer)
        (attached,) = answers
        self.sub: Subscription = self.runner._shard.consumers.subscriptions[attached.prefix]
        return attached.lost

    # The sink

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        (self.again if again else self.runs).extend(runs)
        if self.acking:
            for run in runs:
                self.settle(ACK, [self.receipt(run)])
        self._tell()

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        self.lost_receipts += receipts
        self._tell()

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        self.hunger.append(hungry)
        self.set_credit(self.sub.credit)

    def holds(self, held: int, waiting: int) -> None:
        self.held = held

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        self.end, self.had = (code, message), held
        self._tell()

    # What it says

    def settle(
        self, act: Act, receipts: list[ReceiptRun], answer: SettleAnswer | None = None,
        generation: int | None = None,
    ) -> SettleTicket:  # fmt: skip
        """Without an `answer` it tells at once what is lost."""
        tickets: list[SettleTicket] = [SettleTicket()]

        def told(ticket: SettleTicket, error: PushlaneError | None) -> None:
            if error is not None:
                raise error
            tickets.append(ticket)

        self.runner.settle(
            self.sub.prefix,
            self.sub.generation if generation is None else generation,
            act, receipts, answer or told, silently=answer is None,
        )  # fmt: skip
        return tickets[-1]

    def set_credit(self, credit: int) -> None:
        self.runner.credit(self.sub.prefix, self, credit)

    def detach(self, resume_ms: int) -> None:
        self.runner.detach(self.sub.prefix, self, resume_ms)

    def resume(self, held: list[ReceiptRun]) -> list[ReceiptRun]:
        """What it lists but no longer holds."""
        answers: list[list[ReceiptRun]] = []

        def answer(_: int, lost: list[ReceiptRun], error: PushlaneError | None) -> None:
            if error is not None:
                raise error
            answers.append(lost)

        self.runner.resume(self.sub.prefix, held, self, answer)
        return answers[0]

    def unsubscribe(self) -> None:
        self.runner.unsubscribe(self.sub.prefix, self)

    def leave(self) -> None:
        """Everything goes back."""
        self.runner.end(self.sub.prefix, self)

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def receipt(self, run: Run) -> ReceiptRun:
        return self.sub.prefix, run.n, run.n + len(run.messages) - 1

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for run in self.runs for message in run.messages]

    async def until(self, done: Callable[[], bool]) -> None:
        with trio.fail_after(100_000):
            while not done():
                await self._news.wait()

    async def got(self, count: int) -> list[bytes]:
        """Wait for so many messages in all; their bodies."""
        await self.until(lambda: len(self.bodies) >= count)
        return self.bodies

    async def ack(self, *runs: Run) -> SettleTicket:
        waiter: Waiter[SettleTicket] = Waiter()
        receipts = [self.receipt(run) for run in runs or self.runs]
        self.settle(ACK, receipts, waiter)
        return await waiter.wait()

    async def nack(self, *runs: Run, **how: Any) -> SettleTicket:
        waiter: Waiter[SettleTicket] = Waiter()
        receipts = [self.receipt(run) for run in runs or self.runs]
        self.settle(Act("nack", **how), receipts, waiter)
        return await waiter.wait()


async def settle_as_anybody(r: Rig, prefix: str, n: int) -> SettleTicket:
    """Ack as somebody who has a receipt, but not the subscription."""
    waiter: Waiter[SettleTicket] = Waiter()
    r.runner.settle(prefix, ANYBODY, ACK, [(prefix, n, n)], waiter)
    return await waiter.wait()


def message(body: bytes = b"1", **fields: Any) -> Message:
    at = fields.pop("published_at", START + int(trio.current_time() * 1000))
    return Message(body, at, **fields)


def numbered(count: int, first: int = 0) -> list[Message]:
    return [message(b"%d" % number) for number in range(first, first + count)]


class Rig:
    """A dispatcher with one open queue."""

    def __init__(self, dispatcher: Dispatcher, queue: OpenQueue) -> None:
        self.dispatcher = dispatcher
        self.queue = queue
        self.runner = runners_of(queue)[0]

    def consumer(self, credit: int = 100, **options: Any) -> Consumer:
        return Consumer(self.runner, credit, **options)

    async def publish(self, *bodies: bytes, **fields: Any) -> PublishTicket:
        return await self.runner.publish([message(body, **fields) for body in bodies])

    async def reopen(self) -> None:
        """The queue again, after its shard has stopped."""
        self.queue = await self.dispatcher.open(TENANT, self.queue.row.name)
        self.runner = runners_of(self.queue)[0]


@asynccontextmanager
async def rig(
    store: MemoryStore | None = None,
    leases: MemoryLeases | None = None,
    *,
    name: str = "q",
    settings: Settings | None = None,
    bounds: Bounds | None = None,
    **config: Any,
) -> AsyncIterator[Rig]:
    async with dispatching(store, leases, settings=settings, bounds=bounds) as dispatcher:
        await dispatcher.ensure(TENANT, name, QueueConfig(**config))
        yield Rig(dispatcher, await dispatcher.open(TENANT, name))


@asynccontextmanager
async def dispatching(
    store: MemoryStore | None = None,
    leases: MemoryLeases | None = None,
    *,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
) -> AsyncIterator[Dispatcher]:
    async with open_dispatcher(
        memory_store() if store is None else store,
        leases,
        clock=mock_clock(),
        settings=settings,
        bounds=bounds,
        chance=lambda: 0.5,
    ) as dispatcher:
        yield dispatcher


async def blocked() -> None:
    """Let everything happen that can happen without time passing."""
    await wait_all_tasks_blocked()
