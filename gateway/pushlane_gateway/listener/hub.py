"""What all connections of a listener share, handed to each of them: the flusher, and budgets.

The flusher says when outboxes are written: once a tick, all that got something in it. Whatever a
task puts into an outbox while trio runs one round of tasks leaves in one write in the next round.
One task does that for all sockets, so a message costs no task switch of its own.

Budgets of memory are for what clients have sent in part: frames and bodies that are not complete.
There are two. One is for all that nobody has vouched for: what clients sent before they were
authenticated, and what comes from those that never are, where everybody may come. The other is for
those who are known, of which each gets its share (see `Places`).

Each connection says how many bytes it keeps while it waits for more. When they are too many
together, or too many of one who shares, the connection that keeps the most is cut: an attacker's,
since a whole small request keeps nothing, and one that comes in two pieces keeps little. Who has
but one connection that keeps something is never over its share: a share is always good for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from pushlane.wire.limits import Limits
from pushlane_dispatcher.port import Claims, Places
from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from pushlane_gateway.listener.socket import Socket


FELL_BYTES = 8 * 1024 * 1024
"""When this much was given back, the system may have it."""


class Holder(Protocol):
    """A connection that keeps something."""

    def cut(self) -> None:
        """Give back what you keep, tell the client that it is too much, and end."""
        ...


class Budget:
    def __init__(self, most_bytes: int) -> None:
        self._bytes = Places("bytes", most_bytes, "bytes that wait")
        self._holds: dict[Holder, tuple[int, Claims]] = {}
        self._peak = 0

    @property
    def held(self) -> int:
        """Bytes, of all together."""
        return self._bytes.taken

    def hold(self, holder: Holder, size: int, claims: Claims = ()) -> None:
        """This one keeps so many bytes now, of these; 0: nothing any more."""
        before = self._give_back(holder)
        if size:
            self._holds[holder] = size, claims
            self._bytes.take(claims, size)
            self._peak = max(self._peak, self._bytes.taken)
        while size > before and (among := self._too_many(claims)):
            largest = max(among, key=lambda one: self._holds[one][0])
            self._give_back(largest)
            largest.cut()

    def fell(self) -> bool:
        """Whether much was given back since it was asked last."""
        peak, self._peak = self._peak, self.held
        return peak - self.held > FELL_BYTES

    def _give_back(self, holder: Holder) -> int:
        """How much it had."""
        size, claims = self._holds.pop(holder, (0, ()))
        if size:
            self._bytes.give_back(claims, size)
        return size

    def _too_many(self, claims: Claims) -> list[Holder]:
        """Those who hold too much together; nobody: all is well."""
        if self._bytes.taken > self._bytes.most:
            return list(self._holds)
        claim = self._bytes.over(claims, 0)
        if claim is None:
            return []
        among = [holder for holder, (_, theirs) in self._holds.items() if claim in theirs]
        return among if len(among) > 1 else []


class Flushable(Protocol):
    def flush(self) -> None: ...


class Flusher:
    def __init__(self) -> None:
        self._due: list[Flushable] = []
        self._sleeper: trio.lowlevel.Task | None = None

    def add(self, outbox: Flushable) -> None:
        """Have this one flushed in the next round; the caller adds it once a round only."""
        self._due.append(outbox)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def run(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if not self._due:
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(abort)
            self.flush()

    def flush(self) -> None:
        """Write now what waits for the next round."""
        due, self._due = self._due, []
        for outbox in due:
            outbox.flush()


class Hub:
    def __init__(
        self, nursery: trio.Nursery, settings: GatewaySettings, limits: Limits, counters: Counters
    ) -> None:
        self.nursery = nursery
        """The parent of tasks that write to slow clients."""
        self.settings = settings
        self.limits = limits
        self.counters = counters
        self.flusher = Flusher()
        self.budget = Budget(settings.unauthenticated_total_bytes)
        """For what clients sent that are not authenticated …"""
        self.waiting = Budget(settings.waiting_bytes)
        """… and for what those sent in part that are."""
        self.sockets: set[Socket] = set()
        """The WebSockets that are open, for the watch."""
        self.idle: set[trio.CancelScope] = set()
        """The waits of connections without a request: over when the listener stops."""
        self.stopping = False
        """No new connections and no further requests on old ones."""

    def stop(self) -> None:
        self.stopping = True
        for scope in self.idle:
            scope.cancel()
