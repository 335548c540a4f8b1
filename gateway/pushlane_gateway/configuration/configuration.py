"""Everything that can be set, in one Struct. A Configuration that exists is valid.

load()                  made from pushlane.toml, the environment and flags: load.py
Configuration()         all defaults
Configuration.describe  every key, for docs and checks: known.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pushlane.wire.errors import PushlaneError
from pushlane.wire.limits import Limits
from pushlane_dispatcher.node import (
    ROLES,
    Bounds,
    CassandraLimits,
    ClusterSettings,
    HistorySettings,
    Settings,
    SqliteLimits,
    check_config,
)
from pushlane_dispatcher.port import QueueConfig
from pushlane_gateway.auth.admission import ShareSettings
from pushlane_gateway.auth.key_file import DEFAULT_NAME as KEYS_FILE
from pushlane_gateway.auth.origin import check_host, check_origin
from pushlane_gateway.auth.settings import AuthSettings
from pushlane_gateway.auth.signer import check_secrets
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.listener.address import parse_address
from pushlane_gateway.session.settings import SessionSettings
from pushlane_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from pushlane_gateway.configuration.known import Key


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    certificate: str | None = None
    """File with the certificate and its chain, PEM. With it the server speaks TLS only."""
    key: str | None = None
    """File with the certificate's private key, PEM. Both are read again when they change."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise ValueError(f"{missing} is missing: TLS needs both certificate and key")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """What is less important than this is not logged."""
    format: Literal["auto", "text", "json"] = "auto"
    """`text` is for people, `json` has one object per line for programs, `auto` is `text` on a
    terminal and `json` elsewhere. All go to stderr."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    auto_create: bool = True
    """Whether the first publish or subscribe creates a queue that doesn't exist."""
    template: QueueConfig = QueueConfig()
    """What such a queue is made with. Ranges also depend on `[limits]`."""


SQLITE = "sqlite:"
ALONE = (SQLITE, "memory:")
"""Stores that no other server can share."""
DERIVED = ("shard.credit", "shard.producer_percent", "cluster.heart_ms", "cluster.judge_ms")
"""Fields that follow from others and are no keys: `bounds` sets them."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    roles: tuple[str, ...] = ROLES
    """What this server does: `gateway` serves clients, `dispatcher` owns queues. In a cluster each
    may be a server's only one (docs/cluster.md)."""
    listen: tuple[str, ...] = ("127.0.0.1:8420",)
    """Addresses to listen on: `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`. An address that other
    machines reach needs keys, or `auth.insecure`."""
    store: str = SQLITE + "./pushlane-data"
    """Where messages are kept: `sqlite:DIR`, `cassandra://HOST/KEYSPACE`, or `memory:` for data
    that doesn't have to last."""
    leases: str = "memory:"
    """Where to cache who holds which message: `memory:`, or `redis://HOST:PORT/DB`
    for a cache that outlives the server (`rediss://` with TLS). It may be missing."""
    auth: AuthSettings = AuthSettings()
    """Keys, tokens and browsers."""
    shares: ShareSettings = ShareSettings()
    """How much of what all share one caller may have."""
    tls: TlsSettings = TlsSettings()
    """Encrypted connections."""
    log: LogSettings = LogSettings()
    """What is written to stderr."""
    queues: QueueSettings = QueueSettings()
    """How queues are created."""
    limits: Limits = Limits()
    """What clients may send; they are told in `welcome.limits`."""
    gateway: GatewaySettings = GatewaySettings()
    """The listener and its connections."""
    session: SessionSettings = SessionSettings()
    """What is kept and how long is waited for each client."""
    http: HttpSettings = HttpSettings()
    """The HTTP API."""
    dispatcher: Settings = Settings()
    """How long the dispatcher waits and how much it keeps."""
    shard: Bounds = Bounds()
    """How much one shard of a queue keeps, and when."""
    sqlite: SqliteLimits = SqliteLimits()
    """How long the embedded store waits and how much it keeps."""
    cassandra: CassandraLimits = CassandraLimits()
    """How long the replicated store waits and how much it keeps."""
    cluster: ClusterSettings = ClusterSettings()
    """The other nodes of a cluster, on Cassandra."""
    history: HistorySettings = HistorySettings()
    """What is recorded for the audit."""

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen is empty: give at least one address")
        for address in self.listen:
            parse_address(address)
        self._check_roles()
        for origin in self.auth.allowed_origins:
            check_origin(origin)
        for host in self.auth.allowed_hosts:
            check_host(host)
        check_secrets(self.auth.signing_secrets, "auth.signing_secrets")
        try:
            check_config("template", self.queues.template, self.limits)
        except PushlaneError as error:
            raise ValueError(f"queues.template: {error}") from None

    def _check_roles(self) -> None:
        for role in self.roles:
            if role not in ROLES:
                raise ValueError(f"there is no role {role!r:.50}: take {' or '.join(ROLES)}")
        if not self.roles:
            raise ValueError(f"roles is empty: give at least one of {', '.join(ROLES)}")
        if self.store.startswith(ALONE) and len(set(self.roles)) < len(ROLES):
            raise ValueError(
                f"a server on the store {self.store:.100} is alone, so it needs all roles"
                f" ({', '.join(ROLES)}), not only {self.roles[0]}"
            )

    @property
    def folder(self) -> Path | None:
        """The embedded store's folder; None when the store is none."""
        if self.store.startswith(SQLITE):
            return Path(self.store.removeprefix(SQLITE))
        return None

    @property
    def keys_file(self) -> Path | None:
        """The file of API keys; None: there can't be any."""
        if self.auth.keys_file is not None:
            return Path(self.auth.keys_file)
        return None if self.folder is None else self.folder / KEYS_FILE

    @property
    def bounds(self) -> Bounds:
        """For shards: with what another section says about them."""
        percent = self.shares.key_percent
        return msgspec.structs.replace(
            self.shard, credit=self.limits.credit, producer_percent=percent
        )

    @classmethod
    def describe(cls) -> Iterator[Key]:
        """Every key with its type, default, range and reason, in order."""
        from pushlane_gateway.configuration.known import describe

        return describe()
