"""Routes: which shard of a queue a message goes to.

By its key, so that a key has one order; else by what makes it recognisable, so that a repeat meets
the first one; else at random. The hash is part of the stored format: with another one, keys would
change their shard and repeats would miss.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from pushlane_storage.message import Message


def shard_of(message: Message, shards: int, chance: Callable[[], float]) -> int:
    if shards == 1:
        return 0
    name = message.key
    if name is None:
        name = message.dedup if message.dedup is not None else message.producer
    if name is None:
        return int(chance() * shards)
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards
