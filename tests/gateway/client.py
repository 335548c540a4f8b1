"""A client over a real WebSocket, for tests with a real server process. It speaks JSON frames."""

from __future__ import annotations

import json
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

TIMEOUT = 20
JSON = Subprotocol("pushlane.v1.json")


class WireClient:
    def __init__(self, url: str, **hello: Any) -> None:
        address = url.replace("http", "ws", 1) + "/v1/ws"
        self._stack = ExitStack()
        self.ws: ClientConnection = self._stack.enter_context(
            connect(address, subprotocols=[JSON], open_timeout=TIMEOUT)
        )
        self.say(op="hello", **hello)
        self.welcome = self.hear("welcome")

    def say(self, **frame: Any) -> None:
        self.ws.send(json.dumps(frame))

    def hear(self, op: str) -> dict[str, Any]:
        """The next frame of this op; others before it are skipped."""
        while True:
            frame = self.hear_any()
            if frame["op"] == op:
                return frame

    def hear_any(self) -> dict[str, Any]:
        """The next frame."""
        frame: dict[str, Any] = json.loads(self.ws.recv(timeout=TIMEOUT))
        return frame

    def publish(self, to: str, *bodies: Any) -> list[str]:
        self.say(op="publish", id=1, to=to, messages=[{"body": body} for body in bodies])
        answer = self.hear("published")
        assert "failed" not in answer, answer
        ids: list[str] = answer["ids"]
        return ids

    def subscribe(self, queue: str, credit: int = 100) -> int:
        self.say(op="subscribe", id=2, **{"from": queue}, credit=credit)
        sub: int = self.hear("subscribed")["sub"]
        return sub

    def receive(self, count: int = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += self.hear("deliver")["messages"]
        return found

    def ack(self, sub: int, *receipts: str) -> dict[str, Any]:
        self.say(op="ack", id=3, sub=sub, receipts=receipts)
        return self.hear("done")

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
