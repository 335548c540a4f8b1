"""What the tasks of a dispatcher share: the store, the cache, time, chance and the bounds."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.lease_guard import LeaseGuard
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import Store


def make_prefix() -> str:
    """The unguessable part of a subscription's receipts: 64 random bits."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Tools:
    store: Store
    leases: LeaseGuard | None = None
    clock: Clock = field(default_factory=Clock)
    settings: Settings = field(default_factory=Settings)
    bounds: Bounds = field(default_factory=Bounds)
    limits: Limits = DEFAULTS
    chance: Callable[[], float] = random.random
    prefix: Callable[[], str] = make_prefix
