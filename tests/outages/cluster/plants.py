"""Planted bugs of a cluster: a campaign must find each of them.

`python -m tests.outages.cluster.plants PLANT serve …` is the real node with such a bug in it.
"""

from __future__ import annotations

import sys

import msgspec

from pushlane.cli import main
from pushlane_dispatcher.cluster.members import Members, Watched
from pushlane_dispatcher.cluster.remote.shard import Sent
from pushlane_dispatcher.cluster.repeats import Repeats
from pushlane_dispatcher.shard.port import ShardPort
from tests.crash.plants import early_published, forgotten_ids, put
from tests.outages.plants import LOST, Plant, unfenced, unsettled


def unnumbered() -> None:
    """What was under way to a shard that went away is repeated as something new."""
    publish = Repeats._publish

    def publish_anew(self: Repeats, shard: ShardPort, sent: Sent) -> None:
        sent.messages = [
            msgspec.structs.replace(message, producer=None, producer_seq=0, dedup=None)
            for message in sent.messages
        ]
        publish(self, shard, sent)

    put(Repeats, "_publish", publish_anew)


def hasty() -> None:
    """Who misses a beat is dead."""

    def verdict(self: Members, watched: Watched, now: float) -> str | None:
        return "it missed a beat" if watched.silent_ms > self._settings.heart_ms else None

    put(Members, "_verdict", verdict)


HIDE = "a node that no other reaches"
KILL, CUT = "kill -9 of a node", "a node cut off from Cassandra"
SLOW = "Cassandra is slow"

PLANTS: dict[str, Plant] = {
    "unfenced": Plant(unfenced, CUT, {*LOST, "grant_after_ack", "stale_settle", "dedup"}),
    "unsettled": Plant(unsettled, KILL, {"grant_after_ack"}),
    "forgotten-ids": Plant(forgotten_ids, KILL, {"dedup", "unacked_unknown"}),
    "unnumbered": Plant(unnumbered, HIDE, {"phantom", "dedup"}),
    "early-published": Plant(early_published, KILL, LOST),
    "hasty": Plant(hasty, SLOW, {"bounds"}),
}


if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)].sow()
    main()
