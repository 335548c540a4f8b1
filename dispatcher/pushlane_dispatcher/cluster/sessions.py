"""Sessions of clients, as their gateways leave them to each other.

A session lives at the gateway that has its client's connection. What another one needs to go on
with it stands in the lease cache, with a *term*: one more for each gateway that takes it over. Who
has a lesser one is refused, by the cache and by the owners of shards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from pushlane_dispatcher.cluster.cluster import Cluster
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_leases.interface import KeptSession

log = logging.getLogger(__name__)


class SharedSessions:
    """Nothing here fails: without the cache, sessions can't be resumed elsewhere."""

    def __init__(self, guard: LeaseGuard, cluster: Cluster, process: str, yield_ms: int) -> None:
        self._guard = guard
        self._cluster = cluster
        self._yield_s = yield_ms / 1000
        self.process = process
        """This node's: who takes a session over asks it to yield."""
        self.put, self.get = guard.put_session, guard.get_session
        self.take, self.drop = guard.take_session, guard.drop_session

    async def ask_to_yield(self, process: str, session: str, term: int) -> bytes | None:
        """Have another node leave a session to us. Its record is newer than the cache's; None: it
        can't be reached, or didn't have it."""
        asker = self._cluster.peers.asker(process)
        if asker is None:
            return None
        with trio.move_on_after(self._yield_s):
            return await asker.yield_session(session, term)
        log.info("%s is taken over without the word of its node", session)
        return None

    def on_yield(self, call: Callable[[str, int], bytes | None]) -> None:
        """What to do when another node takes over a session, of this name and with this term.
        Answers its record, if it was here."""
        self._cluster.yield_session = call


__all__ = ["KeptSession", "SharedSessions"]
