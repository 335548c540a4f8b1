"""What stands between the dispatcher and what a store keeps beside the rows of shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Catalog
from pushlane_storage.member import Member, Owner
from pushlane_storage.note import DueShard
from pushlane_storage.ownership import Ownership
from pushlane_storage.queue import QueueConfig, QueueRow

if TYPE_CHECKING:
    from tests.powerloss.witness import Witness


class WitnessedOwnership:
    def __init__(self, real: Ownership, witness: Witness) -> None:
        self._real = real
        self._witness = witness
        self.shared = real.shared
        self.secret = real.secret

    async def claim(self, slot: int, owner: str) -> int:
        epoch = await self._real.claim(slot, owner)
        self._witness.claimed(slot, epoch)
        return epoch

    async def next_epoch(self, shard: ShardKey) -> int:
        epoch = await self._real.next_epoch(shard)
        self._witness.reopened(shard, epoch)
        return epoch

    async def release(self, slot: int) -> None:
        await self._real.release(slot)
        self._witness.released(slot)

    async def confirm(self, shard: ShardKey) -> None:
        await self._real.confirm(shard)

    async def lost(self) -> list[tuple[int, int]]:
        return await self._real.lost()

    async def owner_of(self, slot: int, *, serial: bool = False) -> Owner | None:
        return await self._real.owner_of(slot, serial=serial)

    async def owners(self) -> dict[int, Owner]:
        return await self._real.owners()

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        return await self._real.due_shards(slot, until, limit)

    @property
    def process(self) -> str:
        return self._real.process

    @property
    def draining(self) -> bool:
        return self._real.draining

    @property
    def beat_failing_ms(self) -> int:
        return self._real.beat_failing_ms

    def introduce(self, member: Member) -> None:
        self._real.introduce(member)

    async def members(self) -> list[Member]:
        return await self._real.members()

    async def fence(self, process: str) -> None:
        await self._real.fence(process)

    async def set_draining(self, process: str, draining: bool) -> None:
        await self._real.set_draining(process, draining)


class WitnessedCatalog:
    def __init__(self, real: Catalog, witness: Witness) -> None:
        self._real = real
        self._witness = witness

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return self._witness.met(await self._real.create(tenant, name, config))

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        missing = self._witness.asked(name)
        row = await self._real.read(tenant, name)
        if row is None:
            missing()
            return None
        return self._witness.met(row)

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return [self._witness.met(row) for row in await self._real.list(tenant, after, limit)]

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return await self._real.update(row, config)

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        return await self._real.mark_deleting(row)

    async def remove(self, row: QueueRow) -> None:
        await self._real.remove(row)
        self._witness.removed(row)


class InTurn:
    """What is kept beside the rows of shards: its calls wait for their turn, too."""

    def __init__(self, real: Any, in_turn: Callable[..., Any]) -> None:
        self._real = real
        self._in_turn = in_turn

    def introduce(self, member: Member) -> None:
        """The one plain call among them."""
        self._real.introduce(member)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._in_turn(found) if callable(found) else found
