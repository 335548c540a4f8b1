"""A shard's tally: how what its buckets say becomes counters by the minute, exactly.

The lifetime of a shard is what ever happened in it: messages published, acked, dead by cause, and
so on. It is never written down as such, because it follows from the data: buckets that are not
drained say it themselves, and the tally has the sum of the drained ones. So a new owner finds out
what its predecessor did in its last seconds, and a crash loses no count.

Minute rows telescope: the rows before `minute` add up to `base`, and the row of `minute` is
overwritten with lifetime - base as often as one likes. A new minute begins with a tally whose
`base` is what was written so far. Every step is one row and may be repeated, none needs another
one to happen with it; but a step is durable before the next one is begun.

A bucket's own numbers go with its rows. So before it is marked as drained (from then on its
settlements are not read any more) a tally is written that has them. Its key stays in `counted`
until it surely is marked: a new owner that finds it undrained knows that it is in the sum.

Tallies are kept as usage rows of minute 0, which no reader takes for usage. Versions grow with the
owner's epoch: what a predecessor still writes is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.settlement import BucketState
from pushlane_storage.usage import TALLY_MINUTE, Usage, UsageKey

Counters = dict[str, int]

STORED = "stored_bytes"
"""The one counter that also falls: bytes that are stored and not settled. Its rows say by how much
that changed, so what lay in a shard at any time can be told, also while nobody had it open."""
VERSION_BITS = 32
"""Rows that an owner writes of a shard: one a second for over a century."""
_MINUTE, _BASE, _DRAINED, _COUNTED = "minute", "base.", "drained.", "counted."


class Tally(msgspec.Struct, frozen=True):
    minute: int
    base: Counters = {}
    """What the rows before `minute` add up to."""
    drained: Counters = {}
    """The totals of all buckets that were ever drained."""
    counted: frozenset[BucketKey] = frozenset()
    """Buckets in `drained` that may not be marked as drained yet."""


def node_of(shard: ShardKey) -> str:
    """The node of a shard's exact rows."""
    return f"{shard.queue_id}/{shard.shard}"


def key_of(tenant: str, queue: str, shard: ShardKey, minute: int = TALLY_MINUTE) -> UsageKey:
    """Of a shard's row of a minute; without one, of its tally."""
    return UsageKey(tenant, queue, minute, node_of(shard))


def version_of(epoch: int, n: int) -> int:
    """Of the n-th row that the owner with this epoch writes."""
    return epoch << VERSION_BITS | n


def totals_of(count: int, state: BucketState) -> Counters:
    """What happened in a bucket with so many messages."""
    found = {"published": count, "acked": state.acked.count}
    for cause, ranges in state.gone.items():
        found[cause.replace(":", ".")] = ranges.count
    return {name: value for name, value in found.items() if value}


def add(into: Counters, counters: Mapping[str, int]) -> None:
    for name, value in counters.items():
        into[name] = into.get(name, 0) + value


def difference(whole: Mapping[str, int], part: Mapping[str, int]) -> Counters:
    """What is missing from `part`; names for which nothing is are left out."""
    names = [*whole, *(name for name in part if name not in whole)]
    found = {name: whole.get(name, 0) - part.get(name, 0) for name in names}
    return {name: value for name, value in found.items() if value}


def pack_tally(tally: Tally) -> Counters:
    """As the counters of a usage row."""
    packed = {_MINUTE: tally.minute}
    packed |= {_BASE + name: value for name, value in tally.base.items()}
    packed |= {_DRAINED + name: value for name, value in tally.drained.items()}
    packed |= {_COUNTED + ".".join(map(str, key)): 1 for key in sorted(tally.counted)}
    return packed


def unpack_tally(row: Usage | None) -> Tally | None:
    """None: there is none, or it says that nobody counted for a while."""
    if row is None or _MINUTE not in row.counters:
        return None
    counters = row.counters
    keys = (name.removeprefix(_COUNTED) for name in counters if name.startswith(_COUNTED))
    return Tally(
        counters[_MINUTE],
        _part(counters, _BASE),
        _part(counters, _DRAINED),
        frozenset(_bucket(key.split(".")) for key in keys),
    )


def _part(counters: Counters, prefix: str) -> Counters:
    return {
        name.removeprefix(prefix): value
        for name, value in counters.items()
        if name.startswith(prefix)
    }


def _bucket(parts: Iterable[str]) -> BucketKey:
    lane, epoch, start = map(int, parts)
    return BucketKey(lane, epoch, start)
