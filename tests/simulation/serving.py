"""What clients need of those who serve them, whatever world they live in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.clients import Consumer, PublishRequest, SettleRequest


class Runner(Protocol):
    """One shard on one node."""

    @property
    def shard(self) -> Shard: ...

    def id(self, lane: int, seq: int) -> str: ...

    def turn(self) -> None:
        """Have the shard's wishes seen to."""
        ...

    def publish_token(self, request: PublishRequest) -> object:
        """What to hand to the shard, so that the answer comes back."""
        ...

    def settle_token(self, request: SettleRequest) -> Any: ...

    def sink(self, consumer: Consumer, subscription: Subscription) -> object: ...

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
    def runners(self) -> Mapping[str, Runner]: ...

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]: ...


class Home(Protocol):
    """A cluster, as its clients know it."""

    @property
    def world(self) -> World: ...

    @property
    def node(self) -> Node | None:
        """Where to connect to now."""
        ...

    @property
    def short_window(self) -> bool: ...

    @property
    def consumers(self) -> list[Consumer]: ...
