"""A client of one pipe: it numbers its sends, and remembers what it got."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

Frame = dict[str, Any]
Ask = Callable[[Frame], Awaitable[Any]]
"""Makes one request to `/v1/pipe`; gives the answer's value, and fails unless it is 200."""


class Talk:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.pipe = ""
        self.sends = 0
        self.after = 0
        self.close: Frame | None = None
        """How the server closed it."""
        self.frames: deque[Frame] = deque()
        """Fetched, not heard yet."""

    async def open(self, *frames: Frame, **hello: Any) -> Frame:
        """With a hello; the welcome."""
        opened = await self._ask({"frames": [{"op": "hello", **hello}, *frames]})
        self.pipe = opened["pipe"]
        return await self.hear("welcome")

    def sending(self, *frames: Frame) -> Frame:
        """The body of the next send."""
        self.sends += 1
        return {"pipe": self.pipe, "n": self.sends, "frames": list(frames)}

    async def send(self, *frames: Frame) -> None:
        assert await self._ask(self.sending(*frames)) == {}

    def receiving(self, **fields: Any) -> Frame:
        """The body of the next receive."""
        return {"pipe": self.pipe, "after": self.after, **fields}

    async def fetch(self, **fields: Any) -> Frame:
        answer: Frame = await self._ask(self.receiving(**fields))
        self.after = answer["n"]
        self.frames += answer["frames"]
        self.close = answer.get("close")
        return answer

    async def hear(self, op: str) -> Frame:
        """The next frame, which is of this op; beats don't count."""
        while True:
            while not self.frames:
                assert self.close is None, self.close
                await self.fetch()
            frame = self.frames.popleft()
            if frame["op"] != "beat" or op == "beat":
                assert frame["op"] == op, frame
                return frame

    async def closed(self) -> tuple[int, str]:
        """How the server closes it; whatever comes before is skipped."""
        while self.close is None:
            await self.fetch()
        return self.close["code"], self.close["reason"]

    async def leave(self, code: int = 1000) -> None:
        assert await self._ask({"pipe": self.pipe, "close": code}) == {}


def publish(*bodies: Any, id: int = 1, to: str = "q") -> Frame:
    return {"op": "publish", "id": id, "to": to, "messages": [{"body": body} for body in bodies]}


def subscribe(credit: int = 10, *, id: int = 2, queue: str = "q", **fields: Any) -> Frame:
    return {"op": "subscribe", "id": id, "from": queue, "credit": credit, **fields}


def ack(*messages: Frame, id: int = 3, sub: int = 1) -> Frame:
    return {"op": "ack", "id": id, "sub": sub, "receipts": [one["receipt"] for one in messages]}
