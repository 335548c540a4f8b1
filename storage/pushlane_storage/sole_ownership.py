"""The ownership of a store that one process has to itself: nobody can take a slot from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.bucket import ShardKey


class SoleOwnership:
    shared = False

    def __init__(
        self,
        claim: Callable[[int, str], Awaitable[int]],
        next_epoch: Callable[[ShardKey], Awaitable[int]],
    ) -> None:
        self._claim = claim
        self._next_epoch = next_epoch
        self._owners: dict[int, str] = {}

    async def claim(self, slot: int, owner: str) -> int:
        epoch = await self._claim(slot, owner)
        self._owners[slot] = owner
        return epoch

    async def next_epoch(self, shard: ShardKey) -> int:
        return await self._next_epoch(shard)

    async def release(self, slot: int) -> None:
        await trio.lowlevel.checkpoint()
        self._owners.pop(slot, None)

    async def confirm(self, shard: ShardKey) -> None:
        await trio.lowlevel.checkpoint()

    async def lost(self) -> list[tuple[int, int]]:
        await trio.lowlevel.checkpoint()
        return []

    async def owner_of(self, slot: int) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._owners.get(slot)
