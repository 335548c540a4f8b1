"""What clients need of those who serve them, whatever world they live in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pushlane_dispatcher.core.shard import Shard
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.clients import PublishPart
    from tests.simulation.consumers import Consumer, SettleRequest
    from tests.simulation.fan import Part


class Runner(Protocol):
    """One shard on one node."""

    @property
    def shard(self) -> Shard: ...

    @property
    def label(self) -> str:
        """What the history calls its queue."""
        ...

    def id(self, lane: int, seq: int) -> str: ...

    def turn(self) -> None:
        """Have the shard's wishes seen to."""
        ...

    def wake(self) -> None:
        """The same, soon."""
        ...

    def publish(self, part: PublishPart) -> None:
        """Hand its messages to the shard; the answer comes later."""
        ...

    def settle_token(self, request: SettleRequest) -> Any: ...

    def sink(self, part: Part) -> object: ...

    def started(self, receipt: str) -> None:
        """The shard took the start of a reserved message."""
        ...


class Node(Protocol):
    """Whoever owns the shards, or thinks so."""

    @property
    def alive(self) -> bool: ...

    @property
    def now(self) -> int: ...

    @property
    def wall(self) -> int: ...

    @property
    def runners(self) -> Mapping[str, Sequence[Runner]]:
        """By the name of a queue: its shards."""
        ...

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]: ...


class Home(Protocol):
    """A cluster, as its clients know it."""

    @property
    def world(self) -> World: ...

    def find(self, queue: str) -> Node | None:
        """Where to connect to now."""
        ...

    @property
    def short_window(self) -> bool: ...

    @property
    def keyed(self) -> float:
        """How many of the messages have a key."""
        ...

    @property
    def consumers(self) -> list[Consumer]: ...
