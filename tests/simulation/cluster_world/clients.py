"""Clients of a cluster: they come to any node, and stay there for a while. Its producers.

What they say goes through the product's own doors, so what crosses the links is what really would.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane_dispatcher.callers.publication import Publication as Answers
from pushlane_dispatcher.core.ident import parse_id
from pushlane_history import event as history
from pushlane_storage.message import Message
from tests.simulation.clients import Client, Connection, Producer, PublishRequest, stamped
from tests.simulation.cluster_world.gateway import NodeConnection

if TYPE_CHECKING:
    from tests.simulation.cluster_world.cluster import ClusterOfNodes
    from tests.simulation.cluster_world.node import ClusterNode

STAY = 0.7
"""How likely a client comes back to the node where it was, if that is there."""


def connect(
    client: Client, cluster: ClusterOfNodes, last: ClusterNode | None
) -> ClusterNode | None:
    """To the node where it was, or to another; None: to nobody for now."""
    if client.conn is not None:
        return last
    node = last
    if node is None or not node.at_work or client.rng.random() >= STAY:
        node = cluster.any_node()
    if node is None:
        client.world.after(50, client.connect)
        return last
    client.conn = conn = NodeConnection(client, cluster, node)
    client.connected(conn)
    return node


class Batch(list[Message]):
    """The messages of a request: its queue is known once they get there."""

    def __init__(self, request: PublishRequest, wall: int) -> None:
        super().__init__(stamped(publication.message, wall) for _, publication in request.items)
        self.request = request

    def reached(self, label: str) -> NotFound | None:
        """They are about to go to the shards of this queue; or not, if some of them were for
        another one of its name."""
        request = self.request
        if any(publication.label not in ("", label) for _, publication in request.items):
            return NotFound("it was for another queue of that name")
        request.label = label
        producer = request.producer
        for op, publication in request.items:
            publication.label = label
            producer._record(label, op, publication)
        return None


class NodeProducer(Producer):
    cluster: ClusterOfNodes
    _last: ClusterNode | None = None

    def connect(self) -> None:
        self._last = connect(self, self.cluster, self._last)

    def _arrived(self, conn: Connection, request: PublishRequest) -> None:
        assert isinstance(conn, NodeConnection)
        label = self.cluster.labels[request.queue]
        request.items = [item for item in request.items if item[1].label in ("", label)]
        if not request.items:
            self.unanswered.pop(request, None)
            return
        assert conn.node.clock is not None
        batch = Batch(request, conn.node.clock.wall())
        lanes = [publication.lane for _, publication in request.items]
        conn.end.door.publish(self.queue, batch, lanes, partial(self._told, conn, request))

    def _told(
        self, conn: NodeConnection, request: PublishRequest, answers: Answers | None,
        error: PushlaneError | None = None,
    ) -> None:  # fmt: skip
        conn.node.answer(self, conn, self._result, request, answers, error)

    def _result(
        self, request: PublishRequest, answers: Answers | None, error: PushlaneError | None
    ) -> None:
        if request not in self.unanswered:
            return
        if answers is None:
            assert error is not None
            assert not request.label, "refused as a whole, though it went to shards"
            self._refused(request, error.code)
            return
        for index, (op, _) in enumerate(request.items):
            fault = answers.failed.get(index)
            if fault is not None:
                request.answers[op] = fault.code
                continue
            id = answers.ids[index] or ""
            seq = parse_id(id).seq if id else 0
            duplicate = index in answers.duplicates
            request.answers[op] = history.Published(0, op, id, duplicate, seq)
        self._finished(request)

    def disconnected(self, conn: Connection, broken: bool) -> None:
        assert isinstance(conn, NodeConnection)
        super().disconnected(conn, broken)
        conn.node.guarded(close)(conn)


def close(conn: NodeConnection) -> None:
    conn.end.door.closed = True
