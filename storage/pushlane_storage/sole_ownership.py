"""The ownership of a store that one process has to itself: nobody can take a slot from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced
from pushlane_storage.note import DueShard
from pushlane_storage.slot import slot_of


class SoleOwnership:
    shared = False

    def __init__(
        self,
        claim: Callable[[int, str], Awaitable[int]],
        next_epoch: Callable[[ShardKey], Awaitable[int]],
        due_shards: Callable[[int, int, int], Awaitable[list[DueShard]]],
    ) -> None:
        self._claim = claim
        self._next_epoch = next_epoch
        self._due_shards = due_shards
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
        if slot_of(shard) not in self._owners:
            raise Fenced(f"slot {slot_of(shard)} is not ours")

    async def lost(self) -> list[tuple[int, int]]:
        await trio.lowlevel.checkpoint()
        return []

    async def owner_of(self, slot: int) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._owners.get(slot)

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        return await self._due_shards(slot, until, limit)
