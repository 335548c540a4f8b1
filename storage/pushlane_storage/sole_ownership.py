"""The ownership of a store that one process has to itself: nobody can take a slot from it, and it
is the only member."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import msgspec
import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, ProcessMissing
from pushlane_storage.member import PROCESS_BYTES, Member, Owner
from pushlane_storage.note import DueShard
from pushlane_storage.slot import slot_of


class SoleOwnership:
    shared = False
    secret = b""
    beat_failing_ms = 0

    def __init__(
        self,
        claim: Callable[[int, str], Awaitable[int]],
        next_epoch: Callable[[ShardKey], Awaitable[int]],
        due_shards: Callable[[int, int, int], Awaitable[list[DueShard]]],
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._claim = claim
        self._next_epoch = next_epoch
        self._due_shards = due_shards
        self._owners: dict[int, Owner] = {}
        self.process = randbytes(PROCESS_BYTES).hex()
        self.draining = False
        self._member = Member(process=self.process, name="")

    async def claim(self, slot: int, owner: str) -> int:
        epoch = await self._claim(slot, owner)
        self._owners[slot] = Owner(self.process, owner, epoch)
        return epoch

    async def next_epoch(self, shard: ShardKey) -> int:
        epoch = await self._next_epoch(shard)
        slot = slot_of(shard)
        if slot in self._owners:
            self._owners[slot] = self._owners[slot]._replace(epoch=epoch)
        return epoch

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

    async def owner_of(self, slot: int, *, serial: bool = False) -> Owner | None:
        await trio.lowlevel.checkpoint()
        return self._owners.get(slot)

    async def owners(self) -> dict[int, Owner]:
        await trio.lowlevel.checkpoint()
        return dict(sorted(self._owners.items()))

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        return await self._due_shards(slot, until, limit)

    # Members

    def introduce(self, member: Member) -> None:
        self._member = msgspec.structs.replace(member, process=self.process, beat=0)

    async def members(self) -> list[Member]:
        await trio.lowlevel.checkpoint()
        draining = self._member.draining or self.draining
        return [msgspec.structs.replace(self._member, draining=draining)]

    async def fence(self, process: str) -> None:
        """There is no other process: whichever is meant has left."""
        assert process != self.process, "nobody fences itself"
        await trio.lowlevel.checkpoint()

    async def set_draining(self, process: str, draining: bool) -> None:
        await trio.lowlevel.checkpoint()
        if process != self.process:
            raise ProcessMissing(f"there is no process {process}")
        self.draining = draining
