"""What a fault is, wherever it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)


class Told(NamedTuple):
    """What is to be said of a fault."""

    note: str = ""
    start_ms: int = 0
    """How long a process took to start: that depends on the machine, and is not held against us."""


class Fault(NamedTuple, Generic[S_contra]):
    run: Callable[[S_contra], Told | None]
    bar_ms: int
    """How long no publish may be accepted, whenever in the fault that is."""
