"""The LeaseCache: what is out, in a place that outlives the owner's process.

It only ever delays a redelivery or saves a read. It never overrules the settlement log, never
proves that a publish was stored, never makes a voided receipt valid: so a cache that lost
everything, or answers nonsense from yesterday, costs early redeliveries at most.

Every call of an owner carries its epoch. The cache remembers the greatest epoch that it saw for
a shard and refuses lower ones with `StaleEpoch`: the caller has probably lost the slot. Whether it
has, the store knows; if not, the cache is overwritten.
Every back end passes one conformance suite (tests/leases/conformance.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from pushlane.wire.receipts import ReceiptRun


class LeaseCacheError(Exception):
    """The cache could not be asked: go on without it."""


class StaleEpoch(LeaseCacheError):
    """A newer owner has been here, as far as the cache knows."""

    def __init__(self, shard: str, epoch: int, newest: int) -> None:
        super().__init__(f"{shard}: epoch {epoch}, the owner's is {newest}")
        self.newest = newest


class NotNow(LeaseCacheError):
    """The cache is well, but it can't serve this shard at the moment: its keys are being moved."""


class Forgotten(LeaseCacheError):
    """The call was done, but what the cache knew of this shard before is lost: tell it again."""


class LeaseRun(msgspec.Struct, frozen=True):
    """Leases or reservations of one subscription that are alike and stand in a row.

    Receipt numbers n … n+count-1 hold seqs seq … seq+count-1. Writing a number again replaces
    what was known of it (start, extend).
    """

    prefix: str
    n: int
    count: int
    lane: int
    seq: int
    fence: int
    session: str
    attempts: int
    """Attempts before this one."""
    deliveries: int
    started: bool
    lease_ms: int
    deadline: int
    """Wall-clock milliseconds; the entry may be forgotten after it."""
    owner: int
    """The epoch of the owner that vouches for it: the one that granted it, or adopted it at a
    takeover. Only what the last owner vouched for is worth anything: it alone knew what was
    granted again since."""


class KeptSession(msgspec.Struct, frozen=True):
    """A client's session, as the gateway that has it wrote it down."""

    term: int
    """One more with every gateway that takes it over."""
    record: bytes


class LeaseCache(Protocol):
    @property
    def instant(self) -> InstantCache | None:
        """Itself, when it need not be waited for."""
        ...

    async def claim(self, shard: str, epoch: int, now: int) -> list[LeaseRun]:
        """Become the owner: from now on older epochs are refused. Answers what is still out.

        `now` is wall-clock milliseconds: runs whose deadline passed are left out.
        """
        ...

    async def overwrite(self, shard: str, epoch: int, newest: int) -> None:
        """Become the owner although the cache knows epoch `newest`: the store doesn't.

        What is out is forgotten. If another epoch stands there by now it is a claim like any other,
        and forgets nothing.
        """
        ...

    async def grant(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> None:
        """Remember grants, starts and extensions."""
        ...

    async def release(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> None:
        """Forget what was settled or voided. Unknown receipts are ignored."""
        ...

    async def remember(
        self, shard: str, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int, now: int
    ) -> None:
        """Keep dedup marks, packed by the caller, for a while: each lot under a name."""
        ...

    async def recall(self, shard: str, names: Sequence[str], now: int) -> dict[str, bytes]:
        """Those of the lots that are remembered."""
        ...

    # Sessions: of gateways, not of shards. `id` is a secret, which the cache keeps no copy of.

    async def put_session(self, id: str, term: int, record: bytes, ttl_ms: int, now: int) -> bool:
        """Keep a session's record for a while. False: it has a greater term, so a gateway has taken
        it over since; nothing is changed."""
        ...

    async def get_session(self, id: str, now: int) -> KeptSession | None: ...

    async def take_session(self, id: str, term: int, now: int) -> bool:
        """Take over a session that has this term: it has the next one then. False: it has another
        one, or is not there any more."""
        ...

    async def drop_session(self, id: str, term: int) -> None:
        """Forget a session, unless it was taken over since."""
        ...

    async def close(self) -> None: ...


class InstantCache(Protocol):
    """A cache that answers without waiting: deliveries need not wait for it either."""

    def grant_now(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> None:
        """`grant`, on the spot."""
        ...

    def release_now(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> None:
        """`release`, on the spot."""
        ...
