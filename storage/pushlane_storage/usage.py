"""Usage counters: what a tenant's queue did in one minute on one node.

A row is replaced as a whole by whoever writes its key, never added to: so a write with an unknown
outcome can be repeated. Rows of several nodes add up (`merge`).

Latencies are counted in histograms with fixed bins over milliseconds, a quarter of a power of two
wide. The bins never change, so those of any minutes, nodes and queues can be added bin by bin, and
a percentile of the sum is at most a fifth off.
"""

from collections.abc import Mapping

import msgspec

MAXIMUM = "max."
"""The prefix of counters of which the greatest counts, not the sum."""
TALLY_MINUTE = 0
"""The minute under which a shard keeps its tally (see `tally`): no usage, readers skip it."""
BILLING = "billing"
"""The node of what a job charged for usage."""


class UsageKey(msgspec.Struct, frozen=True, order=True):
    tenant: str
    queue: str
    minute: int
    """Unix time in minutes."""
    node: str


class Usage(msgspec.Struct, frozen=True):
    """Counters that add up, by name: published, acked, dead.max_attempts, bytes_in, …"""

    key: UsageKey
    counters: dict[str, int]
    version: int = 0
    """A row with a lower version than the stored one is ignored."""


class StoredCounters(msgspec.Struct, frozen=True, array_like=True):
    """What stands in the column `counters` of every back end, as MessagePack."""

    version: int
    counters: dict[str, int]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(StoredCounters)


def pack(usage: Usage) -> bytes:
    return _encode(StoredCounters(usage.version, usage.counters))


def unpack(key: UsageKey, stored: bytes) -> Usage:
    found = _decoder.decode(stored)
    return Usage(key, found.counters, found.version)


def merge(into: dict[str, int], counters: Mapping[str, int]) -> None:
    """Add another row's counters to what is there."""
    for name, value in counters.items():
        if name.startswith(MAXIMUM):
            into[name] = max(into.get(name, value), value)
        else:
            into[name] = into.get(name, 0) + value


_EXACT = 8
"""Below this every millisecond has a bin of its own."""
BINS = 4 * 28
"""The last bin takes whatever is longer: a value of 2 ** 30 ms is twelve days."""


def bin_of(ms: int) -> int:
    """The bin of a duration; one that a clock makes negative counts as 0."""
    if ms < _EXACT:
        return max(ms, 0)
    power = ms.bit_length() - 1
    return min(4 * (power - 1) + (ms >> (power - 2) & 3), BINS - 1)


def bounds_of(number: int) -> tuple[int, int]:
    """The shortest duration of a bin, and the first one that is too long for it."""
    if number < _EXACT:
        return number, number + 1
    power, quarter = number // 4 + 1, number % 4
    return (4 + quarter) << (power - 2), (5 + quarter) << (power - 2)
