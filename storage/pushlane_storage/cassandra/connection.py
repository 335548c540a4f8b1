"""The connection: the driver's cluster and session, the statements that it has prepared, and what
its errors mean to us.

Everything here may block, and is called by threads. A connection belongs to no trio loop: several
rings may use one. The driver connects again by itself when nodes come back.

Of an error, `StoreRefused` must be certain: a caller that is refused uses the same keys again for
something else. So only what a coordinator turns down before it sends anything, and what never left
this process, is refused. Everything else is unknown.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.preparing import Done, Preparing
from pushlane_storage.cassandra.statements import Statement
from pushlane_storage.errors import DriverMissing, OpenError, Unreachable

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, ResponseFuture, Session
import struct

from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown

log = logging.getLogger(__name__)

PROTOCOL = 5
"""Of Cassandra 4.0 and newer: its frames carry checksums."""
RECONNECT_SECONDS = (0.5, 3.0)
"""Between two tries to reach a node that is down: the first pause, and the longest."""
AGREE_SECONDS = 30
IDLE_BEAT_SECONDS = 5
"""How often an idle connection is tried, so that a node that hangs is noticed."""

SECOND_SECONDS = 0.5
"""How long a node may take before another one is asked as well …"""
MORE_NODES = 2
"""… and how many are asked in the end beside the first: one may hang and the next be slow."""
DRIVER_THREADS = 8
"""Of the driver, for what may block: connecting to a node that hangs holds one up for `connect_ms`.
The rest is done by the others, such as connecting to nodes that are back."""
SUSPECT_SECONDS = 15.0
"""How long a node that left a request unanswered is asked last: until then its heartbeat has told
whether it hangs (`IDLE_BEAT_SECONDS`, three times)."""


class Connection:
    """Made by `connect`."""

    def __init__(
        self, address: Address, cluster: Cluster, session: Session, limits: Limits
    ) -> None:
        self.address = address
        self.cluster = cluster
        self.session = session
        self._policy = cluster.profile_manager.default.load_balancing_policy
        self._preparing = Preparing(session, limits.request_ms / 1000)

    @classmethod
    def connect(cls, address: Address, limits: Limits) -> Connection:
        """`DriverMissing` without the extra, `Unreachable` when no node lets us in."""
        cluster = make_cluster(address, limits)
        try:
            session = cluster.connect()
            session.default_fetch_size = None  # reads name their limits
        except Exception as error:
            cluster.shutdown()
            raise Unreachable(_why(address, error)) from error
        return cls(address, cluster, session, limits)

    def execute(self, text: str, timeout: float | None = None) -> list[Any]:
        """A statement of the schema, or a look at it: that goes to a second node, too."""
        from cassandra.query import SimpleStatement

        statement = SimpleStatement(text, is_idempotent=text.startswith("SELECT "))
        if timeout is None:
            return list(self.session.execute(statement))
        return list(self.session.execute(statement, timeout=timeout))

    def agree(self) -> None:
        """Wait until all nodes know the same tables. The driver waits for its own changes only."""
        self.cluster.control_connection.wait_for_schema_agreement(wait_time=AGREE_SECONDS)

    def missing(self, statements: Sequence[Statement]) -> str | None:
        """A text that must be prepared before they are begun."""
        for text, _ in statements:
            if self._preparing.find(text) is None:
                return text
        return None

    def prepare_soon(self, text: str, done: Done) -> None:
        """`done` is called once, perhaps in a thread of the driver's."""
        self._preparing.begin(text, done)

    def begin(
        self,
        statements: Sequence[Statement],
        level: int,
        serial: int,
        repeatable: bool,
        seconds: float,
    ) -> ResponseFuture:
        """Send statements: one, or several for one partition, which are stored together. All of
        them are prepared.

        What is repeatable is sent to other nodes when the first is slow to answer. `seconds`: how
        long it may take.
        """
        from cassandra.query import BatchStatement, BatchType

        if len(statements) == 1:
            [(text, values)] = statements
            query = self._prepared(text).bind(values)
        else:
            query = BatchStatement(BatchType.UNLOGGED)
            for text, values in statements:
                query.add(self._prepared(text), values)
        query.consistency_level = level
        query.serial_consistency_level = serial
        query.is_idempotent = repeatable
        future = self.session.execute_async(query, timeout=seconds)
        self._policy.watch(future)
        return future

    def _prepared(self, text: str) -> Any:
        prepared = self._preparing.find(text)
        assert prepared is not None, f"not prepared: {text}"
        return prepared

    def count_nodes(self) -> int:
        return len(self.cluster.metadata.all_hosts())

    @property
    def down(self) -> int:
        """Nodes without a connection."""
        return sum(host.is_up is False for host in self.cluster.metadata.all_hosts())

    @property
    def suspects(self) -> int:
        """Nodes that are asked last because they left requests unanswered."""
        count: int = self._policy.count
        return count

    def close(self) -> None:
        self.cluster.shutdown()


def check_driver() -> None:
    """`DriverMissing` without the extra `cluster`."""
    if find_spec("cassandra") is None:
        raise DriverMissing


def make_cluster(address: Address, limits: Limits) -> Cluster:
    """Not connected yet. `DriverMissing` without the extra `cluster`."""
    check_driver()
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import (
        ConstantSpeculativeExecutionPolicy,
        DCAwareRoundRobinPolicy,
        ExponentialReconnectionPolicy,
        FallthroughRetryPolicy,
        TokenAwarePolicy,
    )
    from cassandra.query import dict_factory

    from pushlane_storage.cassandra.suspects import SuspectsLast

    near = TokenAwarePolicy(DCAwareRoundRobinPolicy(address.dc or ""))
    profile = ExecutionProfile(
        load_balancing_policy=SuspectsLast(near, SUSPECT_SECONDS),
        retry_policy=FallthroughRetryPolicy(),  # we know what may be repeated, and what was sent
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(SECOND_SECONDS, MORE_NODES),
        request_timeout=limits.request_ms / 1000,
        row_factory=dict_factory,
    )
    auth = None
    if address.user is not None:
        auth = PlainTextAuthProvider(username=address.user, password=address.password)
    return Cluster(
        contact_points=address.hosts,
        port=address.port,
        protocol_version=PROTOCOL,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_SECONDS),
        auth_provider=auth,
        ssl_context=_ssl(address),
        executor_threads=DRIVER_THREADS,
        connect_timeout=limits.connect_ms / 1000,
        control_connection_timeout=limits.connect_ms / 1000,
        idle_heartbeat_interval=IDLE_BEAT_SECONDS,
        idle_heartbeat_timeout=IDLE_BEAT_SECONDS,
        prepare_on_all_hosts=False,  # it would wait for one that hangs; a node that must know asks
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # else a write may wait for 40 ms
        compression=False,
        monitor_reporting_enabled=False,
    )


def _ssl(address: Address) -> ssl.SSLContext | None:
    if address.tls is None:
        return None
    try:
        trusted = None if address.tls is True else address.tls
        context = ssl.create_default_context(cafile=trusted)
        # Nodes are reached by addresses that the cluster tells; their certificates rarely name
        # them. Who signs for the cluster is what is trusted.
        context.check_hostname = False
        if address.tls_cert is not None:
            context.load_cert_chain(address.tls_cert, address.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise OpenError(f"the TLS options can't be used: {error}") from error
    return context


def _why(address: Address, error: Exception) -> str:
    where = f"{','.join(address.hosts)}:{address.port}"
    return f"Cassandra can't be reached at {where}: {type(error).__name__}: {error}"


_BUGS = (AssertionError, TypeError, ValueError, struct.error)


def before_sending(error: Exception) -> Exception:
    """What to answer when a request could not even be made. A bug of ours stays what it is."""
    return error if isinstance(error, _BUGS) else outcome_of(error, 0)


def outcome_of(error: Exception, nodes: int) -> StoreError:
    """What to answer. `nodes` is how many of them have been sent the request."""
    from cassandra import InvalidRequest, Unauthorized, Unavailable
    from cassandra.cluster import NoHostAvailable
    from cassandra.protocol import IsBootstrappingErrorMessage, SyntaxException

    turned_down = (InvalidRequest, Unauthorized, IsBootstrappingErrorMessage, SyntaxException)
    # When two were asked, the other one may do what this one turned down.
    if isinstance(error, (Unavailable, *turned_down)) and nodes <= 1:
        return StoreRefused(_text(error))
    if isinstance(error, NoHostAvailable) and not nodes:
        return StoreRefused(_text(error))
    return StoreUnknown(_text(error))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
