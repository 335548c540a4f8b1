"""Ownership: epochs, who has a slot, and what is given back."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Backend, Fenced
from pushlane_storage.member import Owner as Owned
from pushlane_storage.seal import Seal
from pushlane_storage.slot import slot_of
from tests.storage.samples import Owner, messages, unique

Reopen = Callable[[], Awaitable[Backend]]
SLOT = 255


class OwnershipConformance:
    async def test_epochs_grow_with_every_claim(self, store: Backend, reopen: Reopen) -> None:
        epochs = [await store.ownership.claim(SLOT, owner) for owner in ("a", "b", "b")]
        store = await reopen()
        epochs.append(await store.ownership.claim(SLOT, "a"))
        assert epochs[0] >= 1
        assert epochs == sorted(set(epochs))

    async def test_no_two_claims_get_the_same_epoch(self, store: Backend) -> None:
        epochs: list[int] = []

        async def claim(owner: str) -> None:
            epochs.append(await store.ownership.claim(0, owner))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(claim, f"node-{number}")
        assert len(set(epochs)) == 20

    async def test_an_older_owner_is_fenced(self, store: Backend, owner: Owner) -> None:
        segment = await owner.append(0, messages(2))
        await store.ownership.claim(slot_of(owner.shard), "node-2")
        with pytest.raises(Fenced):
            await owner.append(2, messages(2))
        with pytest.raises(Fenced):
            await owner.settle(0, segment.bucket, acked=[(segment.first, segment.last)])
        with pytest.raises(Fenced):
            await store.write_seal(owner.shard, Seal(owner.epoch, [], []))

    async def test_a_shard_that_opens_again_fences_nobody_but_itself(
        self, store: Backend, reopen: Reopen
    ) -> None:
        one = ShardKey(unique("queue"), 0)
        two = next(
            key
            for n in range(10_000)
            if slot_of(key := ShardKey(one.queue_id, n + 1)) == slot_of(one)
        )
        epoch = await store.ownership.claim(slot_of(one), "node-1")
        owners = [Owner(store, key, epoch) for key in (one, two)]
        for owner in owners:
            await owner.append(0, messages(1))
        again = Owner(store, one, await store.ownership.next_epoch(one))
        assert again.epoch > epoch
        await again.append(0, messages(1))
        segment = await owners[1].append(1, messages(1))
        await owners[1].settle(0, segment.bucket, acked=[(segment.first, segment.last)])
        with pytest.raises(Fenced):
            await owners[0].append(1, messages(1))
        assert await store.ownership.next_epoch(two) > again.epoch
        with pytest.raises(Fenced):
            await owners[1].append(2, messages(1))
        await again.append(1, messages(1))
        last = await store.ownership.next_epoch(two)
        store = await reopen()
        assert await store.ownership.claim(slot_of(one), "node-1") > last
        for owner in (again, Owner(store, two, last)):
            owner.store = store
            with pytest.raises(Fenced):
                await owner.append(2, messages(1))

    async def test_who_owns_a_slot_is_known(self, store: Backend, reopen: Reopen) -> None:
        ownership = store.ownership
        for name in ("node-1", "node-2"):
            epoch = await ownership.claim(SLOT, name)
            owner = Owned(ownership.process, name, epoch)
            assert await ownership.owner_of(SLOT) == owner
            assert await ownership.owner_of(SLOT, serial=True) == owner
            assert (await ownership.owners())[SLOT] == owner
        shard = in_slot(SLOT)
        epoch = await ownership.next_epoch(shard)
        assert await ownership.owner_of(SLOT) == owner._replace(epoch=epoch)
        await ownership.release(SLOT)
        for serial in (False, True):
            assert await ownership.owner_of(SLOT, serial=serial) is None
        assert SLOT not in await ownership.owners()
        await ownership.claim(SLOT, "node-3")
        store = await reopen()
        assert await store.ownership.owner_of(SLOT) is None, "who is gone owns nothing"

    async def test_a_slot_that_was_given_back_can_be_claimed_at_once(self, store: Backend) -> None:
        ownership = store.ownership
        first = await ownership.claim(SLOT, "node-1")
        for _ in range(2):
            await ownership.release(SLOT)
        assert await ownership.lost() == [], "it was not lost"
        assert await ownership.claim(SLOT, "node-1") > first

    async def test_an_owner_is_confirmed_while_it_is_one(
        self, store: Backend, owner: Owner
    ) -> None:
        await store.ownership.confirm(owner.shard)
        assert await store.ownership.lost() == []
        again = await store.ownership.next_epoch(owner.shard)
        await store.ownership.confirm(owner.shard)
        assert again > owner.epoch
        assert await store.ownership.lost() == []

    async def test_nobody_is_confirmed_who_never_claimed(self, store: Backend) -> None:
        with pytest.raises(Fenced):
            await store.ownership.confirm(in_slot(SLOT - 1))

    async def test_nobody_is_confirmed_who_gave_the_slot_back(
        self, store: Backend, owner: Owner
    ) -> None:
        await store.ownership.release(slot_of(owner.shard))
        with pytest.raises(Fenced):
            await store.ownership.confirm(owner.shard)
        await store.ownership.claim(slot_of(owner.shard), "node-1")
        await store.ownership.confirm(owner.shard)

    async def test_nobody_is_confirmed_who_owned_the_slot_in_an_earlier_life(
        self, store: Backend, owner: Owner, reopen: Reopen
    ) -> None:
        store = await reopen()
        with pytest.raises(Fenced):
            await store.ownership.confirm(owner.shard)


def in_slot(slot: int) -> ShardKey:
    """A shard of a slot."""
    queue_id = unique("queue")
    return next(key for n in range(100_000) if slot_of(key := ShardKey(queue_id, n)) == slot)
