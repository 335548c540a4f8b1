"""Acts: what a consumer may say of messages that it holds."""

from __future__ import annotations

from typing import Literal

import msgspec

Verb = Literal["start", "ack", "nack", "extend"]


class Act(msgspec.Struct, frozen=True):
    verb: Verb
    lease_ms: int = 0
    """Of `extend`: how long from now on."""
    delay_ms: int | None = None
    """Of `nack`, like the next two: when it comes again; None: after the queue's backoff."""
    error: str | None = None
    dead: bool = False
    """Never again: it is a dead letter."""


START = Act("start")
"""The handler takes it up: the lease clock runs, the attempt counts."""
ACK = Act("ack")
