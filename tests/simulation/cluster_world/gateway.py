"""The gateway of a node: the product's own sessions and requests, over connections of the world.

Frames go to and fro as they are: nobody encodes them. What is written down of a delivery is what
the gateway has pushed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from pushlane.wire.errors import PushlaneError
from pushlane.wire.frames import ErrorFrame, Goaway, error_frame
from pushlane.wire.limits import Limits
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.requests import Requests
from pushlane_gateway.session.session import Session
from pushlane_gateway.session.sessions import Sessions
from pushlane_gateway.session.settings import SessionSettings
from pushlane_gateway.session.timers import Timers
from tests.simulation.clients import RESUME_MS, Client, Connection
from tests.simulation.population import TENANT

if TYPE_CHECKING:
    from tests.simulation.cluster_world.cluster import ClusterOfNodes
    from tests.simulation.cluster_world.node import ClusterNode

LIMITS = Limits(resume_ms=RESUME_MS)
SETTINGS = SessionSettings(
    record_ms=4_000, record_pause_ms=20, takeover_ms=600, reattach_base_ms=20, reattach_max_ms=300,
    goaway_ms=300, drain_ms=600, close_ms=200, reconnect_ms=50,
)  # fmt: skip

Resuming = tuple[str, dict[int, list[ReceiptRun]]]
"""The session that a client goes on with, and what it has of each sub."""


class Welcomed(msgspec.Struct, frozen=True):
    """As far as a client needs it."""

    id: str
    ref: str
    """How its owners name the session."""
    resumed: bool
    lost: dict[int, list[ReceiptRun]]


class WorldTimers(Timers):
    """Without a task; and what fails is a finding."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__()
        self._node = node

    def at(self, when: float, call: Callable[[], None]) -> None:
        world = self._node.world
        world.after(max(0, ceil(when * 1000 - world.now)), self._node.take, call)


class Gateway:
    """The sessions of one node."""

    def __init__(self, node: ClusterNode, dispatcher: Dispatcher, nursery: trio.Nursery) -> None:
        self.dispatcher = dispatcher
        self.start_soon = nursery.start_soon
        self.context = SessionContext(
            dispatcher, _nobody, nursery, limits=LIMITS, settings=SETTINGS, auto_create=False,
            timers=WorldTimers(node), chance=node.world.rng.random, node=node.name,
        )  # fmt: skip
        self.sessions = Sessions(self.context)


def _nobody(_: str | None) -> Identity:
    raise AssertionError("nobody comes with a token")


class PlainFrames:
    """A codec that leaves them as they are."""

    def encode(self, frame: Any) -> Any:
        return frame


class Socket:
    """What is used of one."""

    codec = PlainFrames()
    outbox_bytes = 0

    def __init__(self, end: End) -> None:
        self._end = end

    def hurry(self) -> None:
        """Nothing waits here."""

    def abort(self) -> None:
        self._end.leave_soon()


class NodeConnection(Connection):
    """A client's connection to a node."""

    node: ClusterNode  # type: ignore[assignment]  # less of a node is used here

    def __init__(self, client: Client, cluster: ClusterOfNodes, node: ClusterNode) -> None:
        super().__init__(cluster, node)  # type: ignore[arg-type]
        self.end = End(self, client, cluster)
        self.clean = False
        """Its client says goodbye when it goes."""


class End:
    """The node's end of a connection: a door for producers, or a session.

    It stands in the place of the gateway's own, whose tasks and bytes a world has no use for.
    """

    def __init__(self, conn: NodeConnection, client: Client, cluster: ClusterOfNodes) -> None:
        node = conn.node
        assert node.gateway is not None
        self.conn = conn
        self.client: Any = client
        self.node = node
        self.gateway = node.gateway
        self.socket = Socket(self)
        self.session: Session | None = None
        self.requests: Requests | None = None
        self.over = False
        """The node has closed it, or knows that it is gone."""
        self.going = False
        """Its client was told to go."""
        self._number = cluster.world.op()
        self._gone = False
        self._early: list[Any] | None = None
        """What the session says before its client was welcomed."""
        self.door: Door = self.gateway.dispatcher.door(Caller(TENANT), self.failed)

    def __hash__(self) -> int:
        """Sets of them have the same order in every run."""
        return self._number

    # From the client, at the node

    def hello(self, identity: Identity, resuming: Resuming | None) -> None:
        sessions = self.gateway.sessions
        sessions._connections.add(self)  # type: ignore[arg-type]
        if sessions.draining:
            self.goaway("drain")
            self.close(1001)
        elif resuming is None:
            self._begin(sessions.begin(self, identity), {}, resumed=False)  # type: ignore[arg-type]
        else:
            self.gateway.start_soon(self._resume, identity, *resuming)

    async def _resume(self, identity: Identity, id: str, held: dict[int, list[ReceiptRun]]) -> None:
        sessions: Any = self.gateway.sessions
        session: Session | None = await sessions.find(id, identity)
        if self.over:
            return
        if session is None:
            self._begin(sessions.begin(self, identity), {}, resumed=False)
            return
        sessions.take_up(session)
        self.session, self._early = session, []
        this: Any = self
        session.resume(this, identity, held, lambda lost: self._begin(session, lost, resumed=True))

    def _begin(self, session: Session, lost: dict[int, list[ReceiptRun]], *, resumed: bool) -> None:
        if self.over:
            return
        this: Any = self
        self.session, self.requests = session, Requests(this, session)
        early, self._early = self._early, None
        self.send(Welcomed(session.id, session.ref, resumed, lost))
        for frame in early or ():
            self.send(frame)
        if resumed:
            session.resumed()

    def take(self, frame: Any) -> None:
        if not self.over and self.requests is not None:
            self.requests.take(frame)

    def left(self, *, clean: bool) -> None:
        """The node notices that it is gone."""
        if self._gone:
            return
        clean = clean and not self.over
        self._gone = True
        self._finish()
        sessions: Any = self.gateway.sessions
        session: Any = self.session
        if session is not None and session.connection is self and not clean:
            self.client.detached(session.ref)
        sessions.left(self, clean)

    # To the client

    def send(self, frame: Any) -> None:
        if self._early is not None and not isinstance(frame, ErrorFrame | Goaway):
            self._early.append(frame)
        elif not self.over:
            self._push(frame)

    def send_encoded(self, _: str, frame: Any) -> None:
        self.send(frame)

    def _push(self, frame: Any) -> None:
        client, conn = self.client, self.conn
        client.pushed(conn, frame)
        self.node.answer(client, conn, client.heard, conn, frame)

    def send_error(self, error: PushlaneError, request: str | None = None) -> None:
        self.send(error_frame(error, request=request))

    def goaway(self, reason: str) -> None:
        if self.going or self.over:
            return
        self.going = True
        self.send(Goaway(reason, SETTINGS.reconnect_ms))
        if self.session is not None:
            self.session.pause(True)

    def send_away(self) -> None:
        raise AssertionError("a node of a cluster sends nobody away")

    def close(self, code: int, reason: str | None = None) -> None:
        if not self.over:
            self._finish()
            client, conn = self.client, self.conn
            self.node.answer(client, conn, client.closed, conn)
            self.leave_soon()

    def leave_soon(self) -> None:
        left = self.node.guarded(lambda: self.left(clean=False))
        self.node.world.after(self.node.world.latency(), left)

    def _finish(self) -> None:
        self.over = True
        self.door.closed = True
        if self.requests is not None:
            self.requests.close()

    def failed(self, error: Exception) -> None:
        world = self.node.world
        world.failure = world.failure or error

    def leave(self) -> None:
        """Its place among others: there is room for all."""

    def watch_outbox(self) -> None:
        """What was sent is on its way."""

    @property
    def quiet(self) -> bool:
        return self.requests is None or self.session is None or not self.session.held
