"""Producers over a WebSocket, a pipe, or HTTP. What is numbered is repeated until answered."""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from tests.stress.http_client import Gone, Http
from tests.stress.judge import Judge, Message
from tests.stress.link import Frame, Lost
from tests.stress.load import JUNK, KEY_COUNT, KEYS, WORK
from tests.stress.session import Session

NOTHING_CHANGED = {
    "bad_request", "unauthorized", "forbidden", "not_found", "too_large", "throttled",
    "queue_full", "conflict",
}  # fmt: skip
RATE = 30
"""Batches a second and producer."""
AGAIN = {"throttled", "queue_full"}


class Producer:
    """Publishes batches; `stop` lets it finish what it has begun."""

    def __init__(self, name: str, kind: str, port: int, seed: int, judge: Judge) -> None:
        self.name, self._kind, self._judge = name, kind, judge
        self._rng = Random(f"{seed} {name}")
        self._http = Http(port)
        self._session = Session(
            kind, port, self._rng, judge, welcomed=self._welcomed, producer=name
        )
        self._up = trio.Event()
        self._seq = 0
        self._uids = 0
        self._keys = [f"{name}.{n}" for n in range(KEY_COUNT)]
        self._n: dict[str, int] = {}
        self.stopping = False
        self.delayed: list[Message] = []

    async def _welcomed(self, _: bool) -> None:
        self._up.set()
        self._up = trio.Event()

    async def run(self) -> None:
        async with self._http, trio.open_nursery() as nursery:
            if self._kind != "http":
                nursery.start_soon(self._session.run)
            while not self.stopping:
                await self._publish_one()
                if self._rng.random() < 0.01:
                    self._session.drop()
                await trio.sleep(self._rng.expovariate(RATE))
            nursery.cancel_scope.cancel()

    async def _publish_one(self) -> None:
        queue = self._rng.choice((WORK, WORK, KEYS, KEYS, JUNK))
        count = self._rng.choice((1, 1, 3, 10))
        batch = [self._make(queue) for _ in range(count)]
        if self._rng.random() < 0.05:  # neither number nor id: sent once, whatever comes of it
            await self._send(queue, [(m, self._bare(wire)) for m, wire in batch])
            return
        while batch:
            batch = await self._send(queue, batch)
            if batch:
                await trio.sleep(self._rng.uniform(0.05, 0.3))

    def _make(self, queue: str) -> tuple[Message, Frame]:
        self._uids += 1
        uid = f"{self.name}-{self._uids}"
        message = Message(uid, queue, may_vanish=queue == JUNK)
        wire: Frame = {"body": uid}
        if queue == KEYS:
            message.key = wire["key"] = self._rng.choice(self._keys)
            message.n = self._n[message.key] = self._n.get(message.key, 0) + 1
        else:
            self._decorate(message, wire)
        self._seq += 1
        wire["seq"] = self._seq
        return message, wire

    def _decorate(self, message: Message, wire: Frame) -> None:
        draw = self._rng.random()
        if draw < 0.2:
            wire["priority"] = self._rng.randrange(10)
        elif draw < 0.3:
            wire["delay_ms"] = self._rng.randrange(1, 3_000)
            if message.queue == WORK:
                self.delayed.append(message)
        elif draw < 0.35:
            message.ttl = True
            wire["ttl_ms"] = self._rng.randrange(200, 3_000)
        if self._rng.random() < 0.1:
            wire["headers"] = {"trace": "x" * self._rng.randrange(200)}

    def _bare(self, wire: Frame) -> Frame:
        if "key" in wire:  # an unknown outcome would leave its key's order unknown
            return wire
        return {name: value for name, value in wire.items() if name != "seq"}

    async def _send(self, queue: str, batch: list[tuple[Message, Frame]]) -> Any:
        """What is to be sent again."""
        for message, _ in batch:
            self._judge.asked(message)
        try:
            answer = await self._ask(queue, [wire for _, wire in batch])
        except (Lost, Gone):
            for message, _ in batch:
                self._judge.unanswered(message)
            return [item for item in batch if "seq" in item[1]]
        return self._judged(batch, answer)

    async def _ask(self, queue: str, wires: list[Frame]) -> Frame:
        if self._kind == "http":
            return await self._ask_http(queue, wires)
        while not self._session.is_up:
            if self.stopping:
                raise Lost
            with trio.move_on_after(1):
                await self._up.wait()
        return await self._session.request({"op": "publish", "to": queue, "messages": wires})

    async def _ask_http(self, queue: str, wires: list[Frame]) -> Frame:
        """Where there is no number, an id says that it is a repeat."""
        messages = [{k: v for k, v in wire.items() if k != "seq"} for wire in wires]
        headers = {}
        if len(wires) == 1 and "seq" in wires[0]:
            headers["Idempotency-Key"] = wires[0]["body"]
        else:
            for message, wire in zip(messages, wires, strict=True):
                if "seq" in wire:
                    message["dedup"] = wire["body"]
        path = f"/v1/queues/{queue}/messages"
        status, answer = await self._http.ask("POST", path, {"messages": messages}, headers)
        if status != 200:
            if status >= 500 and status not in (503, 507):
                self._judge.broken("server_error", f"{status} {answer}")
            answer = {**answer["error"], "failed": answer.get("failed")}
        found: Frame = answer
        return found

    def _judged(self, batch: list[tuple[Message, Frame]], answer: Frame) -> Any:
        if "ids" not in answer and not answer.get("failed"):
            failed = dict.fromkeys(range(len(batch)), answer["code"])
            ids: list[str | None] = [None] * len(batch)
        else:
            failed = {one["index"]: one["code"] for one in answer.get("failed", ())}
            ids = answer.get("ids") or [None] * len(batch)
        duplicates = set(answer.get("duplicates", ()))
        again = []
        for index, (message, wire) in enumerate(batch):
            code = failed.get(index)
            if code is None:
                self._judge.confirmed(message, ids[index], index in duplicates)
            elif code not in NOTHING_CHANGED:
                self._judge.unanswered(message)
                if "seq" in wire:
                    again.append((message, wire))
            elif code in AGAIN and message.key is not None:
                again.append((message, wire))  # those behind it wait: its place is kept
            else:
                self._judge.refused(message, code)
        return again
