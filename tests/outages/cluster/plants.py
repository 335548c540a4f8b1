"""Planted bugs of a cluster: a campaign must find each of them.

`python -m tests.outages.cluster.plants PLANT serve …` is the real node with such a bug in it.
"""

from __future__ import annotations

import sys

from pushlane.cli import main
from tests.crash.plants import early_published, forgotten_ids
from tests.outages.plants import LOST, Plant, unfenced, unsettled

KILL, CUT = "kill -9 of a node", "a node cut off from Cassandra"

PLANTS: dict[str, Plant] = {
    "unfenced": Plant(unfenced, CUT, {*LOST, "grant_after_ack", "stale_settle", "dedup"}),
    "unsettled": Plant(unsettled, KILL, {"grant_after_ack"}),
    "forgotten-ids": Plant(forgotten_ids, KILL, {"dedup", "unacked_unknown"}),
    "early-published": Plant(early_published, KILL, LOST),
}


if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)].sow()
    main()
