"""Message ids: opaque to users, a place to us.

An id carries the queue's own id, so that ids of a deleted queue never name a message of the one
that was made under the same name.
"""

from typing import NamedTuple

from pushlane.wire.errors import NotFound
from pushlane_storage.seq import make_id

__all__ = ["Place", "make_id", "make_ids", "parse_id"]

END_BITS = 12
ENDS = [f"{n:03x}" for n in range(1 << END_BITS)]
"""How ids end: writing a whole one in hexadecimal takes three times as long."""


class Place(NamedTuple):
    queue_id: str
    shard: int
    lane: int
    seq: int


def make_ids(queue_id: str, shard: int, lane: int, first: int, count: int) -> list[str]:
    """The ids of messages that stand in a row."""
    start = f"{queue_id}-{shard:x}-{lane:x}-"
    if first >> END_BITS == 0:
        return [f"{start}{seq:x}" for seq in range(first, first + count)]
    ids: list[str] = []
    while count:
        low = first % len(ENDS)
        ends = ENDS[low : low + count]
        begin = f"{start}{first >> END_BITS:x}"
        ids += [begin + end for end in ends]
        first += len(ends)
        count -= len(ends)
    return ids


def parse_id(message_id: str) -> Place:
    """The place that an id names; `NotFound` for what can't be one of ours."""
    try:
        queue_id, shard, lane, seq = message_id.rsplit("-", 3)
        place = Place(queue_id, int(shard, 16), int(lane, 16), int(seq, 16))
    except ValueError:
        raise NotFound("no message has this id") from None
    if make_id(*place) != message_id:  # signs, spaces, capitals, leading zeros
        raise NotFound("no message has this id")
    return place
