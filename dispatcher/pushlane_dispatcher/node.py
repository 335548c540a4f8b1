"""A node: the store and the lease cache that URLs name, and the dispatcher on top of them.

The gateway opens a node and knows nothing of what lies below. What a configuration may set there is
named here; `port` has what a gateway asks of an open node.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import trio

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.clock import Clock, since_boot
from pushlane_dispatcher.cluster.address import unprotected
from pushlane_dispatcher.cluster.links.greeting import Me
from pushlane_dispatcher.cluster.links.network import LinkNetwork, open_network
from pushlane_dispatcher.cluster.links.tls import LinkTls, load_tls
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.config import check_config, queue_ranges
from pushlane_dispatcher.recording.recorder import HistorySettings, Recorder
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import LeaseCache, LeaseCacheError
from pushlane_leases.url import BadLeaseUrl, open_leases, probe_leases
from pushlane_storage.cassandra.limits import Limits as CassandraLimits
from pushlane_storage.errors import OpenError, Unreachable
from pushlane_storage.interface import Backend
from pushlane_storage.member import DISPATCHER, GATEWAY, ROLES, Member
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.limits import Limits as SqliteLimits
from pushlane_storage.url import (
    DEFAULT_LIMITS,
    BadStoreUrl,
    StoreLimits,
    open_store,
    probe_store,
    shown,
)

__all__ = [
    "DISPATCHER",
    "GATEWAY",
    "ROLES",
    "BadLeaseUrl",
    "BadStoreUrl",
    "Bounds",
    "CannotOpen",
    "CassandraLimits",
    "Clock",
    "ClusterSettings",
    "Dispatcher",
    "HistorySettings",
    "LeaseCacheError",
    "Member",
    "QueueConfig",
    "Settings",
    "SqliteLimits",
    "StoreAway",
    "StoreLimits",
    "check_config",
    "open_node",
    "probe_leases",
    "probe_store",
    "queue_ranges",
    "shown",
]


FRAME_SPARE = 64 * 1024
"""What nodes add to a client's frame that they pass on."""


class CannotOpen(Exception):
    """The node can't be opened as it was asked for; the message says why, in one sentence."""


class StoreAway(CannotOpen):
    """The store can't be reached: the same may succeed later."""


@asynccontextmanager
async def open_node(
    store_url: str,
    leases_url: str = "memory:",
    *,
    limits: Limits = DEFAULTS,
    clock: Clock | None = None,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
    owner: str | None = None,
    stores: StoreLimits = DEFAULT_LIMITS,
    history: HistorySettings | None = None,
    cluster: ClusterSettings | None = None,
    about: Member | None = None,
) -> AsyncIterator[Dispatcher]:
    """Raises `CannotOpen` before anything is served. What was opened is closed, come what may.

    A lease cache need not be there, now or later: the dispatcher goes on without it. Where others
    share the store, they are its peers; `about` says what they are told of this node.
    """
    clock = clock or Clock(elapsed=since_boot)
    owner = owner or f"node-{secrets.token_hex(8)}"
    cluster = _fitting(cluster or ClusterSettings(), stores, limits)
    member = about or Member(process="", name="", roles=ROLES)
    name = cluster.name or member.name or owner
    member = msgspec.structs.replace(member, name=name, weight=cluster.weight)
    async with (
        _leases(leases_url) as leases,
        _store(store_url, stores) as store,
        _recording(history, owner, clock) as recorder,
        _network(store, cluster, member, clock) as network,
        open_dispatcher(
            store,
            leases,
            clock=clock,
            settings=settings,
            bounds=bounds or Bounds(credit=limits.credit),
            limits=limits,
            owner=owner,
            recorder=recorder,
            network=network,
            member=_reached(member, cluster, network),
            cluster=cluster,
        ) as dispatcher,
    ):
        yield dispatcher


@asynccontextmanager
async def _store(url: str, limits: StoreLimits) -> AsyncIterator[Backend]:
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(url, limits))
        except Unreachable as error:
            raise StoreAway(str(error)) from error
        except OpenError as error:
            raise CannotOpen(str(error)) from error
        yield store


def _fitting(cluster: ClusterSettings, stores: StoreLimits, limits: Limits) -> ClusterSettings:
    """Who is dead is judged by the hearts of the store; and a client's frame fits into a link's."""
    hearts = stores.cassandra or CassandraLimits()
    frame = max(cluster.frame_bytes, limits.frame_bytes + FRAME_SPARE)
    return msgspec.structs.replace(
        cluster,
        heart_ms=hearts.beat_ms,
        judge_ms=hearts.judge_ms,
        frame_bytes=frame,
        outbox_bytes=max(cluster.outbox_bytes, 2 * frame),
    )


def _reached(
    member: Member, cluster: ClusterSettings, network: LinkNetwork | None
) -> Member | None:
    """With the address at which others reach this node."""
    if network is None:
        return None
    return msgspec.structs.replace(member, address=cluster.address or network.address)


@asynccontextmanager
async def _network(
    store: Backend, cluster: ClusterSettings, member: Member, clock: Clock
) -> AsyncIterator[LinkNetwork | None]:
    """The internal listener; None where nobody shares the store."""
    if not store.ownership.shared:
        yield None
        return

    def me() -> Me:
        # The machine's clock: what we stamp with may be the store's time, whatever that one says.
        process = store.ownership.process
        return Me(cluster.cluster, process, member.name, member.version, clock.system)

    opened = False
    try:
        key, tls = _cluster_key(cluster, store), _link_tls(cluster)
        why = unprotected(cluster.listen, key, tls=tls is not None)
        if why is not None:
            raise ValueError(why)
        async with open_network(
            cluster.listen, me=me, key=key, tls=tls, settings=cluster
        ) as network:
            opened = True
            yield network
    except (OSError, ValueError) as error:
        if opened:
            raise
        raise CannotOpen(f"cluster.listen ({cluster.listen}): {error}") from error


def _cluster_key(cluster: ClusterSettings, store: Backend) -> bytes:
    if cluster.key_file is None:
        return store.ownership.secret
    return Path(cluster.key_file).read_bytes().strip()


def _link_tls(cluster: ClusterSettings) -> LinkTls | None:
    if cluster.certificate is None or cluster.key is None or cluster.authority is None:
        return None
    return load_tls(cluster.certificate, cluster.key, cluster.authority)


@asynccontextmanager
async def _leases(url: str) -> AsyncIterator[LeaseCache]:
    try:
        leases = open_leases(url)
    except BadLeaseUrl as error:
        raise CannotOpen(str(error)) from error
    try:
        yield leases
    finally:
        with trio.CancelScope(shield=True):
            await leases.close()


@asynccontextmanager
async def _recording(
    settings: HistorySettings | None, owner: str, clock: Clock
) -> AsyncIterator[Recorder | None]:
    recorder = _open_recorder(settings, owner, clock)
    try:
        yield recorder
    finally:
        if recorder is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(recorder.close)


def _open_recorder(settings: HistorySettings | None, owner: str, clock: Clock) -> Recorder | None:
    if settings is None or not settings.queues:
        return None
    try:
        return Recorder(settings, owner, clock.wall)
    except OSError as error:
        raise CannotOpen(f"the history can't be recorded in {settings.folder}: {error}") from error
