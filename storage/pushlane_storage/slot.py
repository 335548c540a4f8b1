"""Slots: what nodes own. A shard hashes to one of them.

The hash is part of the stored format: an epoch belongs to a slot, so a shard that moved to
another slot with a new version of the code would meet epochs lower than its own seqs.
"""

from hashlib import blake2b

from pushlane_storage.bucket import ShardKey

SLOTS = 256


def slot_of(shard: ShardKey) -> int:
    name = f"{shard.queue_id}/{shard.shard}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % SLOTS
