from collections import Counter

from pushlane_storage.bucket import ShardKey
from pushlane_storage.slot import SLOTS, slot_of


def test_slots_are_where_they_have_always_been() -> None:
    # Stored epochs depend on this: a change here needs a migration.
    shards = [ShardKey("", 0), ShardKey("orders", 0), ShardKey("orders", 1), ShardKey("žluť", 63)]
    assert [slot_of(shard) for shard in shards] == [2, 157, 78, 152]


def test_shards_spread_evenly() -> None:
    queues, shards = 2_000, 8
    slots = Counter(
        slot_of(ShardKey(f"{queue:032x}", shard))
        for queue in range(queues)
        for shard in range(shards)
    )
    expected = queues * shards / SLOTS
    deviation = sum((slots[slot] - expected) ** 2 / expected for slot in range(SLOTS))
    assert set(slots) == set(range(SLOTS))
    assert (
        deviation < 330
    )  # chi squared, 255 degrees of freedom: one random hash in a thousand exceeds it
