"""Load on open queues: producers that keep publishes in flight, consumers that ack at once."""

from __future__ import annotations

import random
import secrets
import time

import trio

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.effects import Run, SettleTicket
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.sink import Attach, Attached
from pushlane_storage.message import Message

BODY = b'{"text": "' + b"x" * 188 + b'"}'
BATCH = 64
IN_FLIGHT = 256
CREDIT = 4_096


class Producers:
    """So many producers, each with one publish in flight; each to a queue at random."""

    def __init__(
        self,
        queues: list[OpenQueue],
        rng: random.Random,
        in_flight: int = IN_FLIGHT,
        batch: int = BATCH,
    ) -> None:
        self._queues = queues
        self._rng = rng
        self._batch = batch
        self._names = [f"producer-{secrets.token_hex(8)}" for _ in range(in_flight)]
        self._numbers = dict.fromkeys(self._names, 1)
        self._left = 0
        self._waits = 0
        self._done = trio.Event()

    async def run(self, total: int) -> None:
        """Publish so many messages; returns when all of them are acknowledged."""
        self._done = trio.Event()
        self._left = total
        self._waits = len(self._names)
        for name in self._names:
            self._next(name)
        await self._done.wait()

    def _next(self, name: str) -> None:
        count = min(self._batch, self._left)
        if not count:
            self._waits -= 1
            if not self._waits:
                self._done.set()
            return
        self._left -= count
        low = self._numbers[name]
        self._numbers[name] = low + count
        now = time.time_ns() // 1_000_000
        messages = [
            Message(BODY, now, False, None, None, None, name, low + n) for n in range(count)
        ]

        def answer(publication: Publication) -> None:
            assert not publication.failed, publication.failed
            assert not publication.duplicates
            self._next(name)

        self._rng.choice(self._queues).publish_soon(messages, answer)


class Consumer:
    """Acks what it gets, as runs; `acked` counts what was confirmed."""

    def __init__(self, queue: OpenQueue, credit: int = CREDIT, acks: bool = True) -> None:
        [self._shard] = queue.shards
        self._acks = acks
        self.delivered = 0
        self.acked = 0
        self.changed = trio.Event()
        self._prefix = ""
        self._shard.attach(self, Attach("bench", credit), self._attached)

    def _attached(self, attached: Attached | None, error: PushlaneError | None) -> None:
        assert attached is not None, error
        self._prefix = attached.prefix

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        for run in runs:
            count = len(run.messages)
            self.delivered += count
            if self._acks:
                self._ack(run.n, count)
        self._tell()

    def _ack(self, n: int, count: int) -> None:
        def answer(ticket: SettleTicket, error: PushlaneError | None) -> None:
            assert error is None, error
            assert not ticket.lost, ticket.lost
            self.acked += count
            self._tell()

        prefix = self._prefix
        self._shard.settle(prefix, 1, ACK, [(prefix, n, n + count - 1)], answer)

    def _tell(self) -> None:
        self.changed.set()

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        raise AssertionError(f"lost {receipts}")

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        """Never: this is the only shard."""

    def holds(self, held: int, waiting: int) -> None:
        """It counts for itself."""

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        raise AssertionError(message)

    def end(self) -> None:
        self._shard.end(self._prefix, self)

    async def wait_delivered(self, count: int) -> None:
        while self.delivered < count:
            await self._change()

    async def _change(self) -> None:
        self.changed = trio.Event()
        await self.changed.wait()


async def drain(consumers: list[Consumer], total: int) -> None:
    """Wait until they acked so many messages together."""
    while sum(consumer.acked for consumer in consumers) < total:  # noqa: ASYNC110 one of many
        await trio.sleep(0.002)
