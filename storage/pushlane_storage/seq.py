"""A message's place, and the id that is made of it.

seq = epoch << 40 | counter. Counters are dense from 0 in every epoch of a lane, so order is the
order of seq, whatever any clock says, and a hole in the counters shows that something was never
stored.
"""

COUNTER_BITS = 40
COUNTER_MASK = (1 << COUNTER_BITS) - 1


def make_seq(epoch: int, counter: int) -> int:
    """The seq of the counter-th message of an epoch."""
    return epoch << COUNTER_BITS | counter


def epoch_of(seq: int) -> int:
    return seq >> COUNTER_BITS


def counter_of(seq: int) -> int:
    return seq & COUNTER_MASK


def make_id(queue_id: str, shard: int, lane: int, seq: int) -> str:
    return f"{queue_id}-{shard:x}-{lane:x}-{seq:x}"
