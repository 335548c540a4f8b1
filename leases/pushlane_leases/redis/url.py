"""redis:// and rediss:// URLs: where Redis is, how to speak to it, and the bounds of the cache."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from pushlane_leases.redis.cluster import Cluster, Node
from pushlane_leases.redis.connection import Connection
from pushlane_leases.url import BadLeaseUrl


class RedisLimits(msgspec.Struct, frozen=True, kw_only=True):
    # Calls
    pending: int = 10_000
    """Calls that wait for the connection: a shard has one at a time, and a node 10,000 shards."""
    commands: int = 256
    """Commands in one round trip: past this a longer pipeline is no faster, only later."""
    chunk: int = 500
    """Runs, receipts, ids in one script call: Redis does nothing else for that time, 1 to 3 ms."""
    connect_ms: int = 1_000
    """How long a connection may take."""
    answer_ms: int = 2_000
    """How long an answer may take; as `cache_claim_ms` of the dispatcher, the longest wait."""

    seen: int = 10_000
    """Shards of which is noticed that Redis forgot them: as many as a node opens."""

    # What is kept
    shard_runs: int = 100_000
    """Runs of one shard: ten full credits of subscriptions that settle at random, 200 bytes each.
    Past it some go, whichever: a cache may forget."""
    epoch_ms: int = 24 * 3_600_000
    """How long an epoch is kept after its owner's last call, at least. The longest lease is 12 h:
    so whatever a run says is still worth something, the epoch that it was written in is known,
    and a stale owner that wakes up in between finds it. Where runs are kept for longer, so is
    the epoch."""
    grace_ms: int = 60_000
    """What is over is kept for this much longer: Redis' clock and a node's may differ, and whether
    a lease is over is decided by the node that asks."""


PORT = 6379
SCHEMES = ("redis", "rediss")
TLS_OPTIONS = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
        "ssl_keyfile_password",
    }
)
_CLUSTER = re.compile(r"(?<=[?&])cluster=\w*")
"""An option of ours that redis-py doesn't know."""
OPTIONS = frozenset({"client_name", "cluster", "db"})


def open_connection(url: str, limits: RedisLimits) -> Connection | Cluster:
    """Nothing is connected yet: Redis need not be there. `BadLeaseUrl`."""
    pool = make_pool(url, limits)
    if not _is_cluster(url):
        return Connection(pool)
    if pool.connection_kwargs.get("db"):
        raise BadLeaseUrl(f"bad Redis URL {shown(url)}: a cluster has database 0 only")

    def connect(node: Node) -> Connection:
        pool = make_pool(url, limits)
        pool.connection_kwargs["host"], pool.connection_kwargs["port"] = node
        return Connection(pool)

    seed = pool.connection_kwargs["host"], pool.connection_kwargs.get("port", PORT)
    return Cluster(seed, connect)


def make_pool(url: str, limits: RedisLimits) -> ConnectionPool:
    """What makes connections."""
    try:
        _check(url)
        pool: ConnectionPool = ConnectionPool.from_url(
            _CLUSTER.sub("", url),
            socket_timeout=limits.answer_ms / 1000,
            socket_connect_timeout=limits.connect_ms / 1000,
            socket_keepalive=True,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        pool.make_connection()
    except BadLeaseUrl:
        raise
    except Exception as error:
        raise BadLeaseUrl(f"bad Redis URL {shown(url)}: {error}") from None
    return pool


def _is_cluster(url: str) -> bool:
    return dict(parse_qsl(urlsplit(url).query)).get("cluster") == "true"


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise BadLeaseUrl(f"bad Redis URL {shown(url)}: redis://[USER:PASSWORD@]HOST[:PORT][/DB]")
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise BadLeaseUrl(f"bad Redis URL {shown(url)}: {parts.path!r} is not a database number")
    known = OPTIONS | TLS_OPTIONS if parts.scheme == "rediss" else OPTIONS
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise BadLeaseUrl(
                f"bad Redis URL {shown(url)}: unknown option {name!r}, "
                f"known are {', '.join(sorted(known))}"
            )
        if name == "cluster" and value not in ("true", "false"):
            raise BadLeaseUrl(f"bad Redis URL {shown(url)}: cluster is true or false")


def shown(url: str) -> str:
    """The URL for logs and errors, without what may be secret."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
