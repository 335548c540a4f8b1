"""Which node is asked first: none that kept a request waiting lately.

A node that hangs keeps its connections. The driver takes it for dead only when a heartbeat of its
own fails, and until then every request that goes there first waits until a second node is asked.
So a node that left one unanswered is asked last for a while. If it was only slow, or busy, that
costs nothing: the others do its work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from cassandra.cluster import ResponseFuture
from cassandra.policies import LoadBalancingPolicy

log = logging.getLogger(__name__)


class SuspectsLast(LoadBalancingPolicy):  # type: ignore[misc]
    """Another policy's plans, with suspects at their end."""

    def __init__(
        self,
        child: LoadBalancingPolicy,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._child = child
        self._seconds = seconds
        self._clock = clock
        self._until: dict[Any, float] = {}
        """Suspects; at most one entry for each node that ever was."""

    def watch(self, future: ResponseFuture) -> None:
        """Suspect whoever leaves this request unanswered."""
        args = (future,)
        future.add_callbacks(self._over, self._over, callback_args=args, errback_args=args)

    def _over(self, _: object, future: ResponseFuture) -> None:
        for host in future.attempted_hosts:
            if host is future.coordinator_host:
                return  # those behind it had less time
            self._suspect(host)

    def _suspect(self, host: Any) -> None:
        now = self._clock()
        if self._until.get(host, now) <= now:
            log.warning(
                "Cassandra node %s left a request unanswered: it is asked last for %g s",
                host, self._seconds,
            )  # fmt: skip
        self._until[host] = now + self._seconds

    @property
    def count(self) -> int:
        """How many are suspects."""
        now = self._clock()
        return sum(until > now for until in list(self._until.values()))

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> list[Any]:
        plan = list(self._child.make_query_plan(working_keyspace, query))
        if self._until:
            now = self._clock()
            plan.sort(key=lambda host: self._until.get(host, now) > now)
        return plan

    # The rest is the child's.

    def populate(self, cluster: Any, hosts: Any) -> None:
        self._child.populate(cluster, hosts)

    def check_supported(self) -> None:
        self._child.check_supported()

    def distance(self, host: Any) -> Any:
        return self._child.distance(host)

    def on_up(self, host: Any) -> None:
        self._until.pop(host, None)
        self._child.on_up(host)

    def on_down(self, host: Any) -> None:
        self._child.on_down(host)

    def on_add(self, host: Any) -> None:
        self._child.on_add(host)

    def on_remove(self, host: Any) -> None:
        self._until.pop(host, None)
        self._child.on_remove(host)
