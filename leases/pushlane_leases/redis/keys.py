"""The keys, and how they are spread over a Redis Cluster.

A script may touch keys of one hash slot only, and every call is about one shard. So the shard is
the hash tag (the part in braces): its keys are together, and the shards of a node are spread, which
a tag for each of our 256 slots would do less well.
"""

from functools import lru_cache
from urllib.parse import quote as _quote


@lru_cache(maxsize=10_000)
def quote(text: str) -> str:
    """Without spaces and braces; what the server itself makes up stays as it is."""
    return _quote(text, safe="/-_.:")


def epoch_key(shard: str) -> str:
    return f"{{pl/{quote(shard)}}}:epoch"


def runs_key(shard: str) -> str:
    return f"{{pl/{quote(shard)}}}:runs"


def mark_key(shard: str, name: str) -> str:
    return f"{{pl/{quote(shard)}}}:dedup:{_quote(name)}"


def queue_key(tenant: str, name: str) -> str:
    return f"{{pl/queue/{_quote(tenant, safe='')}/{_quote(name, safe='')}}}:row"
