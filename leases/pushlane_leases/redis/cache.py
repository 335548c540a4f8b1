"""The `LeaseCache` over Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pushlane.wire.receipts import ReceiptRun
from pushlane_leases.interface import (
    Forgotten,
    InstantCache,
    KeptSession,
    LeaseRun,
    StaleEpoch,
)
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.entry import (
    CLAIM,
    DROP_SESSION,
    GRANT,
    OVERWRITE,
    PUT_SESSION,
    RELEASE,
    REMEMBER,
    TAKE_SESSION,
    Script,
    decode_run,
    decode_session,
    decode_value,
    encode_run,
    encode_session,
    encode_value,
    epoch_key,
    mark_key,
    number,
    quote,
    runs_key,
    session_key,
)
from pushlane_leases.redis.pipe import Pipe
from pushlane_leases.redis.url import RedisLimits, open_connection

T = TypeVar("T")

FRESH = b"fresh"
"""What a script answers when no owner's epoch was there."""


class RedisLeases:
    """Opened inside trio; Redis need not be there, then or later."""

    instant: InstantCache | None = None

    def __init__(
        self,
        url: str,
        limits: RedisLimits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`BadLeaseUrl` when it is one. `wall` answers Unix seconds."""
        self.limits = RedisLimits() if limits is None else limits
        self._wall = wall
        self._seen: dict[str, None] = {}
        """Shards that Redis knows of, for we were there; the one that came first goes first."""
        connection = open_connection(url, self.limits)
        self._pipe = Pipe(connection, self.limits.pending, self.limits.commands)

    # Leases

    async def claim(self, shard: str, epoch: int, now: int) -> list[LeaseRun]:
        """Page by page: nobody else may write meanwhile, and Redis stays free for others."""
        found: list[LeaseRun] = []
        keys = (epoch_key(shard), runs_key(shard))
        start, limit = b"-", self.limits
        while start:
            args = (number(now), start, limit.chunk)
            command = _script(CLAIM, keys, epoch, limit.epoch_ms, *args)
            [page] = await self._own(shard, epoch, [command])
            found += map(decode_run, page[1:])
            start = b"(" + page[0] if page[0] else b""
        return found

    async def overwrite(self, shard: str, epoch: int, newest: int) -> None:
        keys = (epoch_key(shard), runs_key(shard))
        await self._own(
            shard, epoch, [_script(OVERWRITE, keys, epoch, self.limits.epoch_ms, newest)]
        )

    async def grant(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> None:
        keys, limits = (epoch_key(shard), runs_key(shard)), self.limits
        now = int(self._wall() * 1000)
        deadline = max((run.deadline for run in runs), default=now)
        ttl = max(deadline - now, 0) + limits.grace_ms
        fixed = (epoch, max(limits.epoch_ms, ttl), ttl)
        over = number(now - limits.grace_ms)
        commands = [
            _script(GRANT, keys, *fixed, over, limits.shard_runs, *map(encode_run, chunk))
            for chunk in _chunks(runs, limits.chunk)
        ]
        await self._own(shard, epoch, commands)

    async def release(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> None:
        keys, limits = (epoch_key(shard), runs_key(shard)), self.limits
        commands = [
            _script(RELEASE, keys, epoch, limits.epoch_ms, *_cuts(chunk))
            for chunk in _chunks(receipts, limits.chunk)
        ]
        await self._own(shard, epoch, commands)

    # Dedup marks

    async def remember(
        self, shard: str, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int, now: int
    ) -> None:
        limits = self.limits
        commands = []
        for chunk in _chunks(marks, limits.chunk):
            keys = (epoch_key(shard), *(mark_key(shard, name) for name, _ in chunk))
            values = (encode_value(lot, now + ttl_ms) for _, lot in chunk)
            ttl = ttl_ms + limits.grace_ms
            commands.append(_script(REMEMBER, keys, epoch, max(limits.epoch_ms, ttl), ttl, *values))
        await self._own(shard, epoch, commands)

    async def recall(self, shard: str, names: Sequence[str], now: int) -> dict[str, bytes]:
        commands: list[Command] = [
            ("MGET", *(mark_key(shard, name) for name in chunk))
            for chunk in _chunks(names, self.limits.chunk)
            if chunk
        ]
        entries = [entry for reply in await self._pipe.ask(commands) for entry in reply]
        found = zip(names, (decode_value(entry, now) for entry in entries), strict=True)
        return {name: lot for name, lot in found if lot is not None}

    # Sessions

    async def put_session(self, id: str, term: int, record: bytes, ttl_ms: int, now: int) -> bool:
        value = encode_session(KeptSession(term, record), now + ttl_ms)
        args = (number(term), number(now), value, ttl_ms + self.limits.grace_ms)
        return await self._change(_script(PUT_SESSION, [session_key(id)], *args))

    async def get_session(self, id: str, now: int) -> KeptSession | None:
        [entry] = await self._pipe.ask([("GET", session_key(id))])
        return decode_session(entry, now)

    async def take_session(self, id: str, term: int, now: int) -> bool:
        args = (number(term), number(now), number(term + 1))
        return await self._change(_script(TAKE_SESSION, [session_key(id)], *args))

    async def drop_session(self, id: str, term: int) -> None:
        await self._change(_script(DROP_SESSION, [session_key(id)], number(term)))

    async def _change(self, command: Command) -> bool:
        [changed] = await self._pipe.ask([command])
        return bool(changed)

    async def close(self) -> None:
        await self._pipe.close()

    async def _own(self, shard: str, epoch: int, commands: list[Command]) -> list[list[bytes]]:
        """Ask as the owner: a script that finds a newer one answers with its epoch."""
        replies = await self._pipe.ask(commands)
        for reply in replies:
            if isinstance(reply, int):
                raise StaleEpoch(shard, epoch, reply)
        if shard not in self._seen:
            self._see(shard)
        elif replies[0] == FRESH:
            raise Forgotten(f"{shard}: Redis was restarted or flushed")
        return replies

    def _see(self, shard: str) -> None:
        self._seen[shard] = None
        if len(self._seen) > self.limits.seen:
            del self._seen[next(iter(self._seen))]


def _script(script: Script, keys: Sequence[str], *args: str | bytes | int) -> Command:
    return ("EVALSHA", script.sha, len(keys), *keys, *args)


def _cuts(receipts: Sequence[ReceiptRun]) -> Iterator[str]:
    for prefix, low, high in receipts:
        yield from (quote(prefix), number(low), number(high))


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """At least one, for an empty call compares the epoch, too."""
    for start in range(0, max(len(items), 1), size):
        yield items[start : start + size]
