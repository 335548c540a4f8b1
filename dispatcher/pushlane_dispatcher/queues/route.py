"""Routes: which shard of a queue a message goes to, and which one a receipt is from.

A message goes by its key, so that a key has one order; else by what makes it recognisable, so that
a repeat meets the first one; else at random. The hash is part of the stored format: with another
one, keys would change their shard and repeats would miss.

A receipt's prefix ends with the number of its shard. The lease cache may have prefixes of older
servers, without it: those can be of any shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b

from pushlane_storage.message import Message

MARK = "~"
_NUMBER = re.compile(r"[0-9a-f]{1,8}")


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


def mark_prefix(secret: str, shard: int) -> str:
    """How the receipts of one subscription to this shard begin."""
    return f"{secret}{MARK}{shard:x}"


def marked_shard(prefix: str) -> int | None:
    """The shard that receipts with this prefix are from; None: they don't say."""
    _, mark, number = prefix.rpartition(MARK)
    return int(number, 16) if mark and _NUMBER.fullmatch(number) else None
