"""A session over HTTP without a network: frames in, requests out, by hand."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from pushlane.core.answer import Answer
from pushlane.core.poll import Ask, Poll
from pushlane.core.settings import Settings
from pushlane.wire import JSON, frames
from pushlane.wire.errors import ConnectionLost

F = TypeVar("F", bound=frames.Frame)


class PollRig:
    """One `Poll`; `rooms` is what the client would take, by sub."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.now = 0.0
        self.rooms: dict[int, int | None] = {}
        self.asked: list[Ask] = []
        """Requests without an answer."""
        self.poll = Poll(JSON, settings or Settings(), lambda: 0.5, lambda sub: self.rooms.get(sub))

    def send(self, *sent: frames.ClientFrame) -> list[str]:
        """Send frames and flush; what is asked of the server now."""
        for frame in sent:
            self.poll.send(JSON.encode(frame))
        return self.flush()

    def flush(self) -> list[str]:
        self.poll.flush(self.now)
        asks, self.poll.asks = self.poll.asks, []
        self.asked += asks
        return [shown(ask) for ask in asks]

    def answer(self, status: int, value: Any, *, of: str = "") -> list[frames.ServerFrame]:
        """Answer the oldest request to such a path; what the client is told."""
        ask = self._take(of)
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        self.poll.answered(ask.number, Answer(status, body), self.now)
        return self.told()

    def fail(self, *, of: str = "") -> None:
        self.poll.failed(self._take(of).number, ConnectionLost("cut"), self.now)

    def told(self) -> list[frames.ServerFrame]:
        told, self.poll.frames = self.poll.frames, []
        return [JSON.decode_server(data) for data in told]

    def _take(self, of: str) -> Ask:
        ask = next(ask for ask in self.asked if ask.call.target.endswith(of))
        self.asked.remove(ask)
        return ask

    def dropped(self) -> list[int]:
        drops, self.poll.drops = self.poll.drops, []
        self.asked = [ask for ask in self.asked if ask.number not in drops]
        return drops

    def open(self, token: str | None = None, session: str | None = None) -> None:
        """Say hello, be welcomed."""
        resume = None if session is None else frames.Resume(session)
        self.send(frames.Hello(token, producer="p-1", resume=resume))
        (welcome,) = self.answer(200, {"limits": {}})
        assert isinstance(welcome, frames.Welcome)

    def subscribe(self, ack: Any = "explicit", lease_ms: int | None = None, room: int = 5) -> int:
        """A subscription that has begun; its number."""
        self.send(frames.Subscribe(1, "q", 10, ack, "delivery", lease_ms))
        (subscribed,) = self.answer(200, {"messages": []})
        assert isinstance(subscribed, frames.Subscribed)
        self.rooms[subscribed.sub] = room
        return subscribed.sub


def shown(ask: Ask) -> str:
    """A request as one line."""
    body = ask.call.body
    text = body.decode() if isinstance(body, bytes) else msgspec.json.encode(body).decode()
    path = ask.call.target.removeprefix("/v1/queues")
    return f"{ask.call.method} {path}" + ("" if body is None else f" {text}")


def publish(id: int, *seqs: int, to: str = "q", dedup: str | None = None) -> frames.Publish:
    messages = [frames.PublishMessage(body=Raw(b"%d" % n), seq=n, dedup=dedup) for n in seqs]
    return frames.Publish(id, to, messages)


def delivered(*numbers: int) -> dict[str, Any]:
    """What a receive answers."""
    return {
        "messages": [
            {"id": f"m-{n}", "attempt": 1, "published_at": 0, "body": n, "receipt": f"P.{n}",
             "fence": 7, "lease_ms": 30000}
            for n in numbers
        ]
    }  # fmt: skip
