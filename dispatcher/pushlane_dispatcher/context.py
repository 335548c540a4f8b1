"""What the tasks of a dispatcher share: the store, the cache, time, chance and the bounds."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from pushlane.wire.limits import Limits
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.bodies import Budget
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.settled import Settled
from pushlane_dispatcher.heart import Heart
from pushlane_dispatcher.recording.recorder import Recorder
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.hourly import Hourly
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_storage.interface import Backend


def make_prefix() -> str:
    """64 random bits: `mark_prefix` adds the shard."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Context:
    store: Backend
    leases: LeaseGuard | None
    clock: Clock
    settings: Settings
    bounds: Bounds
    limits: Limits
    chance: Callable[[], float]
    """Random numbers in [0, 1)."""
    prefix: Callable[[], str]
    """Makes the unguessable part of a subscription's receipts."""
    recorder: Recorder | None = None
    """Writes down what happens to some queues."""
    heart: Heart = field(default_factory=Heart)
    """Whether it may grant at all."""
    budget: Budget = field(default_factory=Budget)
    """Of the windows of all open shards."""
    endings: dict[str, int] = field(default_factory=dict)
    """How many messages of all shards ended without an ack, by cause."""
    settled: Settled = field(default_factory=Settled)
    """What requests settled, of all shards."""
    past_retention: Hourly = field(default_factory=Hourly)
    """By queue: what retention ended."""
