"""What a queue's configuration may say. Everything else is a `BadRequest` that names the field."""

from __future__ import annotations

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import DAY, DEFAULTS, HOUR, MINUTE, SECOND, YEAR, Limits
from pushlane.wire.names import check_queue_name
from pushlane_storage.queue import QueueConfig

DEAD = ".dead"
"""How the names of dead-letter queues end, unless their queue says otherwise."""

_RANGES = {
    "max_attempts": (1, 1_000),
    "max_deliveries": (1, 10_000),
    "reserve_ms": (SECOND, DAY),
    "backoff_base_ms": (0, DAY),
    "backoff_max_ms": (0, 30 * DAY),
    "consumer_backoff_base_ms": (0, HOUR),
    "consumer_backoff_max_ms": (0, HOUR),
    "dedup_window_ms": (0, 7 * DAY),
    "max_messages": (1, 1_000_000_000),
    "retention_ms": (MINUTE, 10 * YEAR),
    "shards": (1, 256),
}
MAX_BYTES = 1 << 50

_LATER: dict[str, object] = {
    "ordering": "best_effort",
    "reorder_window_ms": None,
    "late_queue": None,
    "late_to_head": False,
    "encrypted": False,
    "durability": "quorum",
}
"""Fields of which this version knows one value only. Another one is refused, not ignored."""


def check_config(name: str, config: QueueConfig, limits: Limits = DEFAULTS) -> QueueConfig:
    """The configuration itself, or what is wrong with it for a queue of this name."""
    try:
        config = msgspec.convert(msgspec.to_builtins(config), QueueConfig)
    except msgspec.ValidationError as error:
        raise BadRequest(f"configuration: {error}") from None
    for field, only in _LATER.items():
        value = getattr(config, field)
        if value != only:
            raise BadRequest(f"{field} is {value!r}: only {only!r} is supported yet")
    for field, (low, high) in _ranges(limits).items():
        _check_range(field, getattr(config, field), low, high)
    if config.max_bytes is not None:
        _check_range("max_bytes", config.max_bytes, 1, MAX_BYTES)
    for base, most in (
        ("backoff_base_ms", "backoff_max_ms"),
        ("consumer_backoff_base_ms", "consumer_backoff_max_ms"),
    ):
        if getattr(config, base) > getattr(config, most):
            raise BadRequest(f"{base} is greater than {most}")
    _check_dead_letter(name, config)
    return config


def _ranges(limits: Limits) -> dict[str, tuple[int, int]]:
    return {
        "lease_ms": (limits.lease_ms_min, limits.lease_ms_max),
        "max_message_bytes": (1, limits.message_bytes),
        **_RANGES,
    }


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadRequest(f"{field} is {value}: {low} to {high}")


def _check_dead_letter(name: str, config: QueueConfig) -> None:
    target = config.dead_letter
    if target == name:
        raise BadRequest("dead_letter is the queue itself")
    if target:
        check_queue_name(target)
        if name.endswith(DEAD):
            raise BadRequest(f"dead_letter: a queue whose name ends in {DEAD} has none")
    if target is None and not name.endswith(DEAD) and len(name) + len(DEAD) > DEFAULTS.name:
        raise BadRequest(f"queue name is too long for {DEAD} after it: set dead_letter")
    for field in ("overflow", "retention_end"):
        if getattr(config, field) == "dead_letter" and own_dead_letter(name, config) is None:
            raise BadRequest(f"{field} is 'dead_letter', but this queue has no dead-letter queue")


def own_dead_letter(name: str, config: QueueConfig) -> str | None:
    """Where a queue's dead letters go, as far as it alone decides; None: nowhere."""
    if config.dead_letter == "" or name.endswith(DEAD):
        return None
    return config.dead_letter or name + DEAD


def queue_ranges(limits: Limits = DEFAULTS) -> dict[str, tuple[int, int]]:
    """The least and the most that a queue's numbers may be."""
    return {**_ranges(limits), "max_bytes": (1, MAX_BYTES)}
