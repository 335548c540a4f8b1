"""The data centre of this process, and whose slots it may take.

With `dc` a quorum is one of that data centre's replicas, without it one of all replicas. What was
written to the one kind can be missed by a read of the other, so a slot keeps to the kind under
which it was claimed first. There are two ways out:

Where all replicas are in one data centre, both are the same quorum: naming it changes nothing.

Where they are in several, what was written to a quorum of all is brought to every replica by
`nodetool repair`, while no server writes. That somebody did so only they can tell: `adopt=on`. Then
slots that were given back are taken over. One that was not may still have its owner, and a fence
that is set in one data centre is not seen by a quorum of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pushlane_storage.cassandra.connection import Connection

EVERYWHERE = ""
"""In place of a data centre: replicas that are placed without regard to any."""


class Home(NamedTuple):
    dc: str = ""
    """Empty: quorums are of all replicas."""
    only: str = ""
    """The data centre that has all replicas, if one has."""
    adopts: bool = False
    """Take over what was claimed without a data centre."""

    def refusal(self, dc: str, *, is_free: bool) -> str | None:
        """Why a slot that was claimed in a data centre can't be had here; None: it can."""
        if (dc or self.only) == (self.dc or self.only):
            return None
        if dc or not self.adopts:
            return (
                f"belongs to data centre {dc or '(none)'}: what was stored there can't be read"
                f" from {self.dc or '(none)'}" + ("" if dc else _ADVICE)
            )
        return None if is_free else f"was not given back by the server that had it{_ADVICE}"


ANYWHERE = Home()
_ADVICE = "; how to name a data centre later: docs/cassandra.md, Data centres"


def find_home(connection: Connection) -> Home:
    """Blocks."""
    address = connection.address
    nodes = {host.datacenter for host in connection.cluster.metadata.all_hosts()}
    places = {name for name, count in replicas_of(connection).items() if count}
    if EVERYWHERE in places:
        places = nodes
    only = places.pop() if len(places) == 1 else ""
    return Home(address.dc or "", only, address.adopt)


def replicas_of(connection: Connection) -> dict[str, int]:
    """How many replicas a keyspace has, by data centre; none when it is not there."""
    rows = connection.execute(
        "SELECT replication FROM system_schema.keyspaces"
        f" WHERE keyspace_name = '{connection.address.keyspace}'"
    )
    if not rows:
        return {}
    return read_replicas(rows[0]["replication"])


def read_replicas(options: Mapping[str, str]) -> dict[str, int]:
    """What Cassandra says of a keyspace's replication. `3/1`: one of three is transient."""
    counts = {
        name: int(count.partition("/")[0]) for name, count in options.items() if name != "class"
    }
    if "replication_factor" in counts:
        return {EVERYWHERE: counts["replication_factor"]}
    return counts
