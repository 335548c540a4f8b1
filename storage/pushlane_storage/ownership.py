"""Ownership: which process may write for the shards of a slot, and which processes there are.

Claiming a slot begins a tenure, under an epoch that is greater than every one before. Whoever wrote
under an earlier one is fenced from then on. A tenure ends when the slot is given back, or when
another process takes it.

Those who share a store are its members. Each shows itself to the others (`introduce`) with its
heartbeats, and any of them may fence another: from then on nothing counts that the other one
writes. It goes on as a new member when it notices.
"""

from __future__ import annotations

from typing import Protocol

from pushlane_storage.bucket import ShardKey
from pushlane_storage.member import Member, Owner
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

    async def owner_of(self, slot: int, *, serial: bool = False) -> Owner | None:
        """Who owns a slot; None: nobody. It may have changed hands by the time that this answers.

        `serial` costs more, and also sees a change of hands that is just being decided.
        """
        ...

    async def owners(self) -> dict[int, Owner]:
        """Every slot that somebody has. Reads all of them: for people who look at a status."""
        ...

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        """Shards of a slot whose notes are due before `until`, the earliest first: its owner has
        to open them."""
        ...

    # Members

    @property
    def secret(self) -> bytes:
        """Known to all who share the store, and to nobody else; empty where nobody else may."""
        ...

    @property
    def process(self) -> str:
        """The id of this process as of now: it is another one after it was fenced."""
        ...

    def introduce(self, member: Member) -> None:
        """What others see of this process from its next heartbeat on, which comes at once.

        `process` and `beat` are the store's to fill in, and `draining` also is what an operator
        wants (`set_draining`). After a fence it shows as not `placed` until it is introduced anew:
        nobody has reached the new process yet.
        """
        ...

    async def members(self) -> list[Member]:
        """All that are there, this one included as it was last introduced, by `process`.

        Never one that has left or was fenced, once that is known: whoever shows no new heartbeat
        since the last call is looked up.
        """
        ...

    async def fence(self, process: str) -> None:
        """Return when nothing counts any more that this process writes from now on.

        By us, by others, or because it left: all the same. Never ourselves.
        """
        ...

    async def set_draining(self, process: str, draining: bool) -> None:
        """Tell a process to give its slots away, or that it need not. `ProcessMissing` when it is
        not there any more; one that is there notices with its next heartbeat."""
        ...

    @property
    def draining(self) -> bool:
        """Whether an operator wants this process to give its slots away."""
        ...

    @property
    def beat_failing_ms(self) -> int:
        """For how long this process could not show that it is alive; 0 while it can.

        Others fence it when that lasts: it has to stop serving before.
        """
        ...
