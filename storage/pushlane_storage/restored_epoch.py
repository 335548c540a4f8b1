"""The epoch of a restored store: far above every epoch that was given out after its backup.

A backup knows the epochs up to the moment when it was made. The store went on, was opened again,
and gave out greater ones; seqs, message ids and fences are made of them. If a restored store gave
out the same epochs again, an id would name two messages, and a fence would go back. Nobody can
tell a restored store how far the other one got, so it keeps a distance:

    epoch = the backup's + BURST + age of the backup / INTERVAL_S

That is enough if the store was opened at most BURST times plus once in INTERVAL_S, on average,
since the backup was made. It also grows with every restore of the same backup, as long as the
store that was restored before is opened less often than once in INTERVAL_S.

Distances are not free. A seq is epoch << 40 | counter in a signed integer of 64 bits, so there are
2**23 epochs; fences (epoch << 20) stay far below 2**53, where JSON's integers end. A day costs
2,880 of 8,388,608 epochs, a year about a million. Who knows better says so: `above`, for example
the fence of any delivery >> 20.
"""

from pushlane_storage.errors import EpochsExhausted
from pushlane_storage.seq import COUNTER_BITS

BURST = 1_000
"""Openings in quick succession: a server that crashes at every start, say."""
INTERVAL_S = 30
"""Openings for which there is room in the long run: one in this time."""
SPARE = 1 << 16
"""Epochs that must be left for the restored store itself."""
LAST = (1 << (63 - COUNTER_BITS)) - 1 - SPARE


def restored_epoch(epoch: int, taken_at: int, now: int, above: int = 0) -> int:
    """The epoch from which a restored store goes on. Times are Unix milliseconds."""
    age = max(0, now - taken_at)
    distance = BURST + -(-age // (INTERVAL_S * 1000))
    new = max(epoch + distance, above)
    if new > LAST:
        raise EpochsExhausted(new, LAST)
    return new
