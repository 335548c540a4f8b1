"""A core with a connection, for unit tests: time by hand, effects by kind."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Raw

from pushlane.core import effects as fx
from pushlane.core.client import ClientCore
from pushlane.core.settings import Settings
from pushlane.wire import DEFAULTS, JSON, Limits, frames

E = TypeVar("E", bound=fx.Effect)


class Rig:
    """One client core; `now` is in milliseconds."""

    def __init__(self, settings: Settings | None = None, draw: float = 0.5) -> None:
        self.now = 0.0
        self.core = ClientCore(producer="p", random=lambda: draw, settings=settings or Settings())
        self.link = 0

    def open(self, limits: Limits = DEFAULTS, session: str = "s", *, resumed: bool = False) -> None:
        """Dial (if need be), connect, be welcomed."""
        if self.core.wake_at() is None:
            self.core.start(self.now, "start")
        while not (dials := self.take(fx.Dial)):
            wake_at = self.core.wake_at()
            assert wake_at is not None
            self.now = max(self.now, wake_at)
            self.core.tick(self.now)
        self.link = dials[-1].link
        self.core.connected(self.link, None, self.now)
        self.hello = JSON.decode_client(self.take(fx.Send)[-1].data)
        self.receive(frames.Welcome(session, "a", "x", resumed, 0, 30_000, 25_000, limits.wire()))
        self.core.flush(self.now)

    def receive(self, *received: frames.ServerFrame) -> None:
        self.core.received(self.link, [JSON.encode(frame) for frame in received], self.now)

    def lose(self, code: int = 1006, reason: str = "") -> None:
        self.core.lost(self.link, self.now, code=code, reason=reason)

    def tick(self, ms: float) -> None:
        self.now += ms
        self.core.tick(self.now)
        self.core.flush(self.now)

    def publish(self, ticket: str, queue: str = "q", body: bytes = b"1") -> None:
        message = frames.PublishMessage(body=Raw(body))
        self.core.publish(queue, message, ticket, self.now)

    def flush(self) -> list[frames.ClientFrame]:
        """Flush; the frames that went out since the last look."""
        self.core.flush(self.now)
        return [JSON.decode_client(effect.data) for effect in self.take(fx.Send)]

    def take(self, kind: type[E]) -> list[E]:
        """The effects of this kind, which are forgotten."""
        found: list[E] = [e for e in self.core.effects if isinstance(e, kind)]
        self.core.effects[:] = [e for e in self.core.effects if not isinstance(e, kind)]
        return found

    def outcomes(self) -> dict[Any, Any]:
        """Ticket → value or error code."""
        resolved: dict[Any, Any] = {e.ticket: e.value for e in self.take(fx.Resolve)}
        return resolved | {e.ticket: e.error.code for e in self.take(fx.Reject)}

    def subscribe(self, credit: int = 10, ack: str = "explicit", sub: int = 1) -> Any:
        """A live subscription."""
        subscription = self.core.subscribe("q", credit, ack, None, "sub")  # type: ignore[arg-type]
        (asked,) = self.flush()
        assert isinstance(asked, frames.Subscribe)
        self.receive(frames.Subscribed(asked.id, sub))
        return subscription

    def deliver(self, *numbers: int, sub: int = 1, lease_ms: int = 30_000) -> None:
        messages = [
            frames.DeliverMessage(
                f"m-{n}", 1, 0, body=Raw(b"%d" % n), receipt=f"P.{n}", fence=1, lease_ms=lease_ms
            )
            for n in numbers
        ]
        self.receive(frames.Deliver(sub, messages))
