"""The settlement log, the seals and the notes."""

from collections.abc import Awaitable, Callable
from itertools import islice

from pushlane_storage.bucket import CONTROL, BucketKey
from pushlane_storage.interface import Backend
from pushlane_storage.note import DueShard, KeptNumbers, Note
from pushlane_storage.outcome import settle
from pushlane_storage.seal import Seal
from pushlane_storage.settlement import Purge, Settlement, fold
from pushlane_storage.slot import SLOTS, slot_of
from tests.storage.samples import LANE, START, Owner, claimed_all, full_settlement

Reopen = Callable[[], Awaitable[Backend]]


class SettlementConformance:
    async def test_every_field_of_a_row_comes_back(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        row = full_settlement(owner, 0, owner.bucket())
        for field in Settlement.__struct_fields__:
            assert getattr(row, field) or field == "n", field
        await settle(store, owner.shard, [row])
        store = await reopen()
        [found] = await store.settlements(owner.shard, owner.bucket())
        assert found == row
        assert isinstance(found.bucket, BucketKey)
        assert isinstance(found.parts[0], BucketKey)
        assert isinstance(found.acked[0], tuple)

    async def test_rows_come_by_owner_and_number(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        key = owner.bucket()
        for n in (2, 0, 11, 1):
            await owner.settle(n, key, acked=[(n, n)])
        store = await reopen()
        [newer] = await claimed_all(store, owner.shard)
        for n in (1, 0):
            await newer.settle(n, key, acked=[(n, n)])
        order = [(row.owner, row.n) for row in await store.settlements(owner.shard, key)]
        old, new = owner.epoch, newer.epoch
        assert order == [(old, 0), (old, 1), (old, 2), (old, 11), (new, 0), (new, 1)]

    async def test_a_flush_writes_to_every_bucket_that_it_touches(
        self, store: Backend, owner: Owner
    ) -> None:
        keys = [owner.bucket(lane) for lane in range(4)]
        await owner.settle(0, *keys[:3], acked=[(1, 2)])
        await owner.settle(1, *keys[1:], acked=[(3, 4)])
        flushes = [[row.n for row in await store.settlements(owner.shard, key)] for key in keys]
        assert flushes == [[0], [0, 1], [0, 1], [1]]
        for row in await store.settlements(owner.shard, keys[1]):
            assert row.bucket == keys[1]
            assert row.parts == (keys[:3] if row.n == 0 else keys[1:])

    async def test_the_same_flush_again_is_stored_once(self, store: Backend, owner: Owner) -> None:
        rows = await owner.settle(0, owner.bucket(1), owner.bucket(2), acked=[(1, 2)])
        await settle(store, owner.shard, rows)
        await owner.settle(0, owner.bucket(1), owner.bucket(2), acked=[(1, 2)])
        assert await store.settlements(owner.shard, owner.bucket(1)) == rows[:1]
        assert await store.settlements(owner.shard, owner.bucket(2)) == rows[1:]

    async def test_the_shard_has_a_partition_of_its_own(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        purge = Purge(LANE, owner.seq(9), [owner.seq(3)])
        rows = await owner.settle(0, CONTROL, purges=[purge])
        await owner.settle(1, owner.bucket())
        store = await reopen()
        assert await store.settlements(owner.shard, CONTROL) == rows
        assert (await store.outline(owner.shard)).buckets == []

    async def test_a_checkpoint_row_folds_to_the_same_state(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        key = owner.bucket()
        await settle(store, owner.shard, [full_settlement(owner, 0, key)])
        await owner.settle(1, key, acked=[(20, 29)])
        before = fold(await store.settlements(owner.shard, key))
        await owner.settle(2, key, checkpoint=before.checkpoint())
        store = await reopen()
        rows = await store.settlements(owner.shard, key)
        assert len(rows) == 3
        assert fold(rows).checkpoint() == fold(rows[-1:]).checkpoint() == before.checkpoint()

    async def test_shards_and_buckets_have_logs_of_their_own(
        self, store: Backend, owner: Owner
    ) -> None:
        other = owner.shard._replace(shard=1)
        one, two = await claimed_all(store, owner.shard, other)
        mine = await one.settle(0, one.bucket(start=START), acked=[(1, 1)])
        later = await one.settle(1, one.bucket(start=START + 1), acked=[(2, 2)])
        theirs = await two.settle(0, two.bucket(start=START), acked=[(3, 3)])
        assert await store.settlements(one.shard, one.bucket(start=START)) == mine
        assert await store.settlements(one.shard, one.bucket(start=START + 1)) == later
        assert await store.settlements(two.shard, two.bucket(start=START)) == theirs

    async def test_a_note_is_replaced_by_newer_ones_only(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        assert (await store.outline(owner.shard)).note is None
        kept = [KeptNumbers("p", 7, 3, [(4, 2, LANE, 1 << 41), (9, 1, -1, 0)])]
        notes = [
            Note(owner.epoch, 0, "t", "q", 50),
            Note(owner.epoch, 1, "t", "q", 20, kept, False),
            Note(owner.epoch, 2, "t", "q", None, kept),
        ]
        await store.write_note(owner.shard, notes[1])
        await store.write_note(owner.shard, notes[1])
        await store.write_note(owner.shard, notes[0])
        assert (await store.outline(owner.shard)).note == notes[1]
        await store.write_note(owner.shard, notes[2])
        store = await reopen()
        assert (await store.outline(owner.shard)).note == notes[2]
        [newer] = await claimed_all(store, owner.shard)
        first = Note(newer.epoch, 0, "t", "q")
        await store.write_note(owner.shard, first)
        assert (await store.outline(owner.shard)).note == first

    async def test_shards_that_are_due_are_found_by_their_slot(
        self, store: Backend, owner: Owner
    ) -> None:
        slot = slot_of(owner.shard)
        others = (owner.shard._replace(shard=number) for number in range(1, 10_000))
        shards = [owner.shard, *islice((key for key in others if slot_of(key) == slot), 2)]
        owners = await claimed_all(store, *shards)
        for due, one in zip((30, 10, None), owners, strict=True):
            await store.write_note(one.shard, Note(one.epoch, 0, "t", "q", due))
        late, early = (DueShard(due, "t", "q", *shards[n]) for due, n in ((30, 0), (10, 1)))

        async def find(slot: int, until: int) -> list[DueShard]:
            found = await store.ownership.due_shards(slot, until, 1_000)
            return [one for one in found if one.queue_id == owner.shard.queue_id]

        assert await find(slot, 31) == [early, late]
        assert await find(slot, 30) == [early]
        assert await find((slot + 1) % SLOTS, 31) == []
        assert len(await store.ownership.due_shards(slot, 31, 1)) == 1

    async def test_the_newest_seal_comes_back(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        [neighbour] = await claimed_all(store, owner.shard._replace(shard=1))
        [owner] = await claimed_all(store, owner.shard)
        first = Seal(owner.epoch, [(LANE, 1, 1 << 39), (9, 1, 0)], [(1, 7)])
        await store.write_seal(owner.shard, first)
        found = (await store.outline(owner.shard)).seals
        assert found == [first]
        assert isinstance(found[0].counters[0], tuple)
        store = await reopen()
        [newer] = await claimed_all(store, owner.shard)
        second = Seal(newer.epoch, [], [])
        await store.write_seal(owner.shard, second)
        await store.write_seal(owner.shard, second)
        assert (await store.outline(owner.shard)).seals == [second], (
            "it has carried on what the others say"
        )
        assert (await store.outline(neighbour.shard)).seals == []
