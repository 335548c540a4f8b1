"""Snapshots of shards that change hands, packed: on their way out, and until they open here.

Each comes whole or not at all. What was not wanted for a while goes: its leases have run out, or
its shard opened elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pushlane_dispatcher.core.snapshot import Holder, Snapshot
from pushlane_dispatcher.settings import Settings
from pushlane_storage.bucket import ShardKey

PIECE_BYTES = 1 << 18
"""A snapshot travels in pieces of about this, so that others get their turn on the link."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Holder]).decode


def pack(snapshot: Snapshot) -> Iterator[bytes]:
    """Its holders, in pieces; at least one."""
    piece: list[msgspec.Raw] = []
    size = 0
    for holder in snapshot.holders:
        packed = _encode(holder)
        if piece and size + len(packed) > PIECE_BYTES:
            yield _encode(piece)
            piece, size = [], 0
        piece.append(msgspec.Raw(packed))
        size += len(packed)
    yield _encode(piece)


class Given:
    """A snapshot of which some pieces have come."""

    __slots__ = ("epoch", "pieces", "since", "size", "until", "whole")

    def __init__(self, epoch: int, since: int, until: int) -> None:
        self.epoch = epoch
        self.since = since
        """Wall clock: when it came."""
        self.until = until
        """Wall clock: when it goes."""
        self.pieces: list[bytes] = []
        self.size = 0
        self.whole = False


class Handed:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._given: dict[ShardKey, Given] = {}  # the oldest first
        self._size = 0

    def __len__(self) -> int:
        return len(self._given)

    def take(self, key: ShardKey, epoch: int, piece: bytes, now: int, *, last: bool) -> None:
        """One piece of a snapshot, in their order. `now` is wall-clock milliseconds."""
        given = self._given.get(key)
        if given is None or given.whole or given.epoch != epoch:
            self.drop(key)
            given = self._given[key] = Given(epoch, now, now + self._settings.handed_ms)
        given.pieces.append(piece)
        given.size += len(piece)
        given.whole = last
        self._size += len(piece)
        self._forget(now)

    def find(self, key: ShardKey, now: int) -> Snapshot | None:
        """What was handed over of a shard, if anything was."""
        self._forget(now)
        given = self._given.get(key)
        if given is None or not given.whole:
            return None
        try:
            holders = [holder for piece in given.pieces for holder in _decode(piece)]
        except msgspec.DecodeError:  # of a version that packs it in another way
            return None
        return Snapshot(given.epoch, given.since, holders)

    def drop(self, key: ShardKey) -> None:
        """It is not wanted any more."""
        given = self._given.pop(key, None)
        if given is not None:
            self._size -= given.size

    def _forget(self, now: int) -> None:
        """What is too old, or too much."""
        while self._given:
            oldest = next(iter(self._given))
            if self._given[oldest].until > now and self._size <= self._settings.handed_bytes:
                break
            self.drop(oldest)
