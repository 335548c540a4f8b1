"""Runs a script against the core, and writes down what it does."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import msgspec

from pushlane.core import effects as fx
from pushlane.core import settle
from pushlane.core.choice import Wish
from pushlane.core.client import ClientCore
from pushlane.core.lease import Lease
from pushlane.core.publication import Item, Published, make_message
from pushlane.core.settle import ACK, Key
from pushlane.core.subscription import Subscription
from pushlane.wire import JSON
from pushlane.wire.errors import PushlaneError
from tests.vectors.scripts import SCRIPTS, Step

DRAW = 0.5


class Player:
    """A client, the names of a scenario's things, and what it did."""

    def __init__(self) -> None:
        self.core = self._client("ws")
        self.subscriptions: dict[str, Subscription] = {}
        self.messages: dict[str, Lease] = {}

    def play(self, at: int, event: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Make it happen; the effects."""
        getattr(self, f"_{event}")(at, **arguments)
        effects = [self._shown(effect) for effect in self.core.effects]
        self.core.effects.clear()
        return effects

    def _client(self, transport: Wish) -> ClientCore:
        draws = cycle([DRAW])
        return ClientCore(
            producer="p-1", name="vector", random=lambda: next(draws), transport=transport
        )

    def _start(self, at: int, ticket: str, transport: Wish = "ws") -> None:
        self.core = self._client(transport)
        self.core.start(at, ticket)

    def _connected(self, at: int, link: int, token: str | None) -> None:
        self.core.connected(link, token, at)

    def _received(self, at: int, link: int, frames: list[Any]) -> None:
        self.core.received(link, [msgspec.json.encode(frame) for frame in frames], at)

    def _lost(self, at: int, link: int, code: int, reason: str, refused: int | None = None) -> None:
        self.core.lost(link, at, code=code, reason=reason, refused=refused)

    def _probed(self, at: int, link: int, is_good: bool) -> None:
        self.core.probed(link, at, is_good=is_good)

    def _tick(self, at: int) -> None:
        self.core.tick(at)

    def _flush(self, at: int) -> None:
        self.core.flush(at)

    def _publish(self, at: int, ticket: str, queue: str, message: dict[str, Any]) -> None:
        self.core.publish(queue, make_message(Item(**message)), ticket, at)

    def _subscribe(self, at: int, ticket: str, subscription: str, queue: str, credit: int) -> None:
        found = self.core.subscribe(queue, credit, "explicit", None, ticket)
        self.subscriptions[subscription] = found

    def _unsubscribe(self, at: int, subscription: str, ticket: str) -> None:
        self.core.unsubscribe(self.subscriptions[subscription], ticket)

    def _take(self, at: int, subscription: str, keep: bool) -> None:
        lease = self.core.take(self.subscriptions[subscription], at)
        if lease is not None:
            self.messages[lease.message.id] = lease
            if keep:
                self.core.keep(lease, at)

    def _ack(self, at: int, message: str, ticket: str) -> None:
        self._settle(message, ACK, ticket)

    def _nack(
        self, at: int, message: str, ticket: str, delay_ms: int | None = None,
        error: str | None = None,
    ) -> None:  # fmt: skip
        self._settle(message, settle.nack(error, delay_ms, self.core.limits), ticket)

    def _reject(self, at: int, message: str, ticket: str, error: str) -> None:
        self._settle(message, settle.reject(error, self.core.limits), ticket)

    def _settle(self, message: str, key: Key, ticket: str) -> None:
        lease = self.messages[message]
        self.core.release(lease)
        self.core.settle(lease, key, ticket)

    def _close(self, at: int, timeout_ms: int, ticket: str) -> None:
        self.core.close(at, timeout_ms, ticket)

    # Effects as plain objects

    def _shown(self, effect: fx.AnyEffect) -> dict[str, Any]:
        match effect:
            case fx.Send():
                frame = msgspec.json.decode(effect.data)
                return {"effect": "send", "link": effect.link, "frame": frame}
            case fx.Dial():
                return {"effect": "dial", "link": effect.link, "transport": effect.transport}
            case fx.Probe():
                return {"effect": "probe", "link": effect.link}
            case fx.Hangup():
                return {"effect": "hangup", "link": effect.link, "code": effect.code}
            case fx.Resolve():
                return {"effect": "resolve", "ticket": effect.ticket, **_value(effect.value)}
            case fx.Reject():
                return {"effect": "reject", "ticket": effect.ticket, "code": effect.error.code}
            case fx.Ready():
                return {"effect": "ready", "subscription": self._named(effect.subscription)}
            case fx.Lost():
                return {"effect": "lost", "message": effect.lease.message.id}
            case fx.Ended():
                name = self._named(effect.subscription)
                return {"effect": "ended", "subscription": name, "code": _code(effect.error)}
            case fx.StateChanged():
                return {"effect": "state", "state": effect.state, "code": _code(effect.error)}

    def _named(self, subscription: Subscription) -> str:
        return next(name for name, found in self.subscriptions.items() if found is subscription)


def _value(value: Any) -> dict[str, Any]:
    return {"id": value.id} if isinstance(value, Published) else {}


def _code(error: PushlaneError | None) -> str | None:
    return None if error is None else error.code


def play(steps: list[Step]) -> list[dict[str, Any]]:
    """The steps with what they lead to."""
    player = Player()
    played = []
    for at, event, arguments in steps:
        effects = player.play(at, event, arguments)
        played.append(
            {
                "at": at,
                "event": event,
                **arguments,
                "effects": effects,
                "state": player.core.state,
                "wake_at": player.core.wake_at(),
            }
        )
    return played


def scenarios() -> dict[str, Any]:
    """All scripts, played."""
    return {
        "producer": "p-1",
        "client": "vector",
        "draw": DRAW,
        "encoding": JSON.subprotocol,
        "scenarios": [{"name": name, "steps": play(steps)} for name, steps in SCRIPTS.items()],
    }
