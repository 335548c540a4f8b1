"""Settles on their way to another node. Those that say the same go together.

Clients that start or ack one message at a time say so in a frame for each, and many frames come in
one read. What one subscription settles alike, one receipt behind the other, leaves as one frame
before the next write, and the owner answers it once. Everything else that is asked meanwhile goes
behind it, so the order stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.shard.sink import SettleAnswer

if TYPE_CHECKING:
    from pushlane_dispatcher.cluster.remote.shard import RemoteShard

MOST = 1_000
"""Receipts that go together: whoever waits for them waits no longer than for one large ack."""


class Request(msgspec.Struct, eq=False):
    """A settle as its caller said it."""

    low: int
    high: int
    """The numbers of its receipts, where it may go together with others."""
    answer: SettleAnswer


class Together(msgspec.Struct, eq=False):
    """What goes in one frame."""

    shard: RemoteShard
    prefix: str
    generation: int
    act: Act
    silently: bool
    receipts: list[ReceiptRun]
    requests: list[Request]
    size: int
    """How many receipts, or `MOST`: it goes alone."""

    def takes(
        self, shard: RemoteShard, prefix: str, generation: int, act: Act, silently: bool
    ) -> bool:
        """It is said of the same, and alike."""
        return (
            self.shard is shard
            and self.prefix == prefix
            and self.generation == generation
            and self.silently is silently
            and (self.act is act or self.act == act)
        )

    def add(self, low: int, high: int, answer: SettleAnswer) -> bool:
        """Behind the last one: False when it is not, or too much."""
        size = self.size + high - low + 1
        if size > MOST:
            return False
        prefix, first, last = self.receipts[-1]
        if low <= last:
            return False
        if low == last + 1:
            self.receipts[-1] = prefix, first, high
        else:
            self.receipts.append((prefix, low, high))
        self.requests.append(Request(low, high, answer))
        self.size = size
        return True

    def told(self, told: frames.Settled | PushlaneError) -> None:
        if isinstance(told, PushlaneError):
            for request in self.requests:
                request.answer(SettleTicket(), told)
            return
        of_start = self.act.verb in ("start", "extend")
        self.shard.settled(self.prefix, self.generation, told.lost if of_start else self.receipts)
        ticket = SettleTicket(None, False, told.lost, told.duplicate)
        if len(self.requests) == 1 or not (told.lost or told.duplicate):  # nearly always
            for request in self.requests:
                request.answer(ticket, None)
            return
        for request in self.requests:
            lost, duplicate = _within(told.lost, request), _within(told.duplicate, request)
            request.answer(SettleTicket(None, False, lost, duplicate), None)


class Settles:
    def __init__(
        self, soon: Callable[[Callable[[], None]], None], request: Callable[[Any], int],
        send: Callable[[frames.Frame], None],
    ) -> None:  # fmt: skip
        """`soon` calls before the next write; `request` has an answer taken, by its id; `send`
        sends at once."""
        self._soon = soon
        self._request = request
        self._send = send
        self._last: Together | None = None
        """What has not been sent yet."""
        self._booked = False
        """It is about to be."""

    def add(
        self, shard: RemoteShard, prefix: str, generation: int, act: Act,
        receipts: Sequence[ReceiptRun], answer: SettleAnswer, silently: bool,
    ) -> None:  # fmt: skip
        last, low, high = self._last, 0, -1
        one = len(receipts) == 1 and receipts[0][0] == prefix
        if one:
            _, low, high = receipts[0]
        if (
            last is not None
            and one
            and last.takes(shard, prefix, generation, act, silently)
            and last.add(low, high, answer)
        ):
            return
        self.flush()
        size = high - low + 1 if one else MOST
        self._last = Together(
            shard, prefix, generation, act, silently, [*receipts], [Request(low, high, answer)],
            size,
        )  # fmt: skip
        if not self._booked:
            self._booked = True
            self._soon(self._flush_now)

    def flush(self) -> None:
        """Something else is about to be said, which comes behind."""
        last, self._last = self._last, None
        if last is not None:
            act = last.act
            self._send(
                frames.Settle(
                    last.shard.ref, self._request(last.told), last.prefix, last.generation,
                    last.receipts, last.silently, act.verb, act.lease_ms, act.delay_ms, act.error,
                    act.dead,
                )
            )  # fmt: skip

    def _flush_now(self) -> None:
        self._booked = False
        self.flush()


def _within(runs: list[ReceiptRun], request: Request) -> list[ReceiptRun]:
    """Those of one request."""
    return [
        (prefix, max(low, request.low), min(high, request.high))
        for prefix, low, high in runs
        if low <= request.high and high >= request.low
    ]
