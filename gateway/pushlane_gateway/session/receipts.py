"""Receipts on their way out: runs of the core as the wire's strings."""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.wire.limits import DEFAULTS
from pushlane.wire.receipts import Span, render

_RUN = DEFAULTS.run


def render_all(spans: Iterable[Span]) -> list[str]:
    """As few strings as the protocol's longest run allows."""
    found: list[str] = []
    for prefix, low, high in spans:
        while high - low >= _RUN:
            found.append(render(prefix, low, low + _RUN - 1))
            low += _RUN
        found.append(render(prefix, low, high))
    return found


def count(spans: Iterable[Span]) -> int:
    return sum(high - low + 1 for _, low, high in spans)
