"""The sections that are nobody else's: TLS, the log, and how queues come to be."""

from __future__ import annotations

from typing import Literal

import msgspec

from pushlane_dispatcher.port import QueueConfig


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
