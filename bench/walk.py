"""The walk of a message: which functions of ours one publish, one delivery and one ack go through.

    python -m bench.walk            how many, in each file
    python -m bench.walk --list     each call, in order

A server on the embedded store and one client, one message at a time, so nothing is batched. What
other tasks of the server do meanwhile (timers, heartbeats) may slip in; of several rounds the one
with the fewest calls counts. Only the server's own functions are counted, not those of libraries.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trio
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from pushlane_gateway.configuration.load import load
from pushlane_gateway.server import open_server

ROOT = Path(__file__).parents[1]
OURS = tuple(
    str(ROOT / folder) for folder in ("gateway", "dispatcher", "storage", "leases", "sdk_py")
)
ROUNDS = 20
WARM_UP = 20
NO_CALLS = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}
"""What is no function with a name: part of the one around it."""


class Trace:
    """The calls of one thread, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(OURS) and code.co_name not in NO_CALLS:
                self.calls.append(code)

    def during(self, work: Callable[[], None]) -> list[CodeType]:
        self.calls = []
        self.on = True
        work()
        self.on = False
        return self.calls


class Client:
    """One that waits for each answer, in a thread of its own."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws
        self.say(op="hello")
        self.hear("welcome")
        self.say(op="subscribe", id=1, **{"from": "walk"}, credit=100)
        self.sub = self.hear("subscribed")["sub"]
        self.receipt = ""

    def say(self, **frame: Any) -> None:
        self.ws.send(json.dumps(frame))

    def hear(self, *ops: str) -> dict[str, Any]:
        """Frames until each of these has come; the last of them."""
        waiting = set(ops)
        while waiting:
            frame: dict[str, Any] = json.loads(self.ws.recv(timeout=20))
            waiting.discard(frame["op"])
            if frame["op"] == "deliver":
                self.receipt = frame["messages"][0]["receipt"]
        return frame

    def publish(self) -> None:
        self.say(op="publish", id=2, to="walk", messages=[{"body": "hello"}])
        self.hear("published", "deliver")

    def ack(self) -> None:
        self.say(op="ack", id=3, sub=self.sub, receipts=[self.receipt])
        self.hear("done")


def walk() -> tuple[list[CodeType], list[CodeType]]:
    """The calls of a publish with its delivery, and of an ack."""
    trace = Trace()
    found: list[tuple[list[CodeType], list[CodeType]]] = []

    def load_it(url: str) -> None:
        address = url.replace("http", "ws", 1) + "/v1/ws"
        with connect(address, subprotocols=[Subprotocol("pushlane.v1.json")]) as ws:
            client = Client(ws)
            for number in range(WARM_UP + ROUNDS):
                calls = trace.during(client.publish), trace.during(client.ack)
                if number >= WARM_UP:
                    found.append(calls)

    async def serve(folder: str) -> None:
        flags = {"listen": ["127.0.0.1:0"], "store": f"sqlite:{folder}"}
        async with open_server(load(flags=flags, environment={})) as server:
            sys.setprofile(trace)
            await trio.to_thread.run_sync(load_it, server.urls[0])
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as folder:
        trio.run(serve, folder)
    publishes, acks = zip(*found, strict=True)
    return min(publishes, key=len), min(acks, key=len)


def show(calls: list[CodeType], *, each: bool) -> None:
    if each:
        for code in calls:
            print(f"  {place(code)}: {code.co_qualname}")
        return
    files = Counter(place(code) for code in calls)
    functions = Counter(place(code) for code in set(calls))
    for path, count in files.items():
        print(f"  {count:4d} calls of {functions[path]:3d}  {path}")


def place(code: CodeType) -> str:
    """Its file, from the root."""
    return str(Path(code.co_filename).relative_to(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__)
    parser.add_argument("--list", action="store_true", help="each call, in order")
    args = parser.parse_args()
    for title, calls in zip(("publish and deliver", "ack"), walk(), strict=True):
        print(f"{title}: {len(set(calls))} functions, {len(calls)} calls")
        show(calls, each=args.list)


if __name__ == "__main__":
    main()
