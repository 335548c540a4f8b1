"""Ownership: which process may write for the shards of a slot.

Claiming a slot begins a tenure, under an epoch that is greater than every one before. Whoever wrote
under an earlier one is fenced from then on. A tenure ends when the slot is given back, or when
another process takes it.
"""

from __future__ import annotations

from typing import Protocol

from pushlane_storage.bucket import ShardKey
from pushlane_storage.note import DueShard


class Ownership(Protocol):
    @property
    def shared(self) -> bool:
        """Whether other processes own slots of the same store, and may take one of ours."""
        ...

    async def claim(self, slot: int, owner: str) -> int:
        """Take a slot and answer its new epoch, greater than every one before (from 1).

        A tenure begins: whoever wrote under an earlier epoch of the slot is fenced.
        """
        ...

    async def next_epoch(self, shard: ShardKey) -> int:
        """One more epoch of a slot that was claimed, for a shard of it that opens again.

        What the shard wrote under before is over. Other shards of the slot go on under the epochs
        that they have of this tenure. `Fenced` when the slot is not ours.
        """
        ...

    async def release(self, slot: int) -> None:
        """Give a slot back, so that another process gets it at once. Safe to repeat."""
        ...

    async def confirm(self, shard: ShardKey) -> None:
        """Return when this process was still the shard's owner after the call began; `Fenced` when
        it was not, never was, or has given the slot back."""
        ...

    async def lost(self) -> list[tuple[int, int]]:
        """Slots that this process claimed and others have by now, each with its own last epoch."""
        ...

    async def owner_of(self, slot: int) -> str | None:
        """Who owns a slot, by the name given with the claim; None: nobody.

        It may have changed hands by the time that this answers.
        """
        ...

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        """Shards of a slot whose notes are due before `until`, the earliest first: its owner has
        to open them."""
        ...
