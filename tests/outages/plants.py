"""Planted bugs: a campaign must find each of them, or it would not find the real ones.

`python -m tests.outages.plants PLANT serve …` is the real server with such a bug in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pushlane.cli import main
from pushlane_dispatcher.core import opening
from pushlane_dispatcher.core.opening import Opening
from pushlane_storage.cassandra.node import Fence
from pushlane_storage.seal import ShardRows
from tests.crash.plants import early_published, forgotten_ids, put


class Plant(NamedTuple):
    sow: Callable[[], None]
    fault: str
    """What brings it to light."""
    caught: set[str]
    """The rules of which at least one must say so."""


def unfenced() -> None:
    """A gateway takes it for granted that it is still the owner."""

    async def look(self: Fence) -> None:
        pass

    put(Fence, "_look", look)


def unsettled() -> None:
    """A new owner doesn't read what became of the messages that it takes over."""

    read_rows = opening.read_rows

    def read_half() -> Opening[ShardRows]:
        rows = yield from read_rows()
        return msgspec.structs.replace(rows, settlements={})

    put(opening, "read_rows", read_half)


KILL, HANG = "kill -9 of the gateway", "the gateway hangs, another takes over"
LOST = {"lost", "ack_before_durable"}

PLANTS: dict[str, Plant] = {
    "unfenced": Plant(unfenced, HANG, {*LOST, "grant_after_ack", "stale_settle", "dedup"}),
    "unsettled": Plant(unsettled, KILL, {"grant_after_ack"}),
    "forgotten-ids": Plant(forgotten_ids, KILL, {"dedup", "unacked_unknown"}),
    "early-published": Plant(early_published, KILL, LOST),
}


if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)].sow()
    main()
