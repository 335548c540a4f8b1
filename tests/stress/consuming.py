"""Consumers: over a WebSocket or a pipe with a session, or with plain HTTP receives.

They ack, ack twice, nack, reject, extend, dawdle past their lease, walk away. In the calm they are
well: they ack whatever comes.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from tests.stress.http_client import Gone, Http
from tests.stress.judge import Grant, Judge
from tests.stress.link import Frame, Lost
from tests.stress.load import LEASE_MS, WORK
from tests.stress.session import Session

DAWDLE_S = 1.5 * LEASE_MS / 1000


class Consumer:
    """What all have in common: how they treat a message."""

    def __init__(self, name: str, queue: str, seed: int, judge: Judge) -> None:
        self.name, self.queue, self.judge = name, queue, judge
        self.rng = Random(f"{seed} {name}")
        self.calm = False

    async def settle(self, verb: str, grant: Grant, **more: Any) -> Frame | None:
        """What the server answered; None when nobody will know. `Lost` or `Gone` likewise."""
        raise NotImplementedError

    async def treat(self, grant: Grant) -> None:
        draw = 1.0 if self.calm else self.rng.random()
        try:
            if draw < 0.05:
                return  # forgotten: its lease runs out
            if draw < 0.10:
                await trio.sleep(DAWDLE_S)
            elif draw < 0.15:
                await self.settle("extend", grant, lease_ms=2 * LEASE_MS)
            elif draw < 0.25:
                await self._nack(grant)
                return
            await self._ack(grant)
            if draw < 0.3:
                await self._ack(grant)
        except (Lost, Gone):
            return

    async def _nack(self, grant: Grant) -> None:
        draw = self.rng.random()
        if draw < 0.2 and self.queue == WORK:
            grant.message.rejected = True
            await self.settle("nack", grant, dead=True, error="of no use")
        elif draw < 0.6:
            await self.settle("nack", grant, delay_ms=self.rng.choice((0, 50, 500)))
        else:
            await self.settle("nack", grant, error="try again")

    async def _ack(self, grant: Grant) -> None:
        newest = self.judge.acking(grant)
        answer = await self.settle("ack", grant)
        if answer is None or "code" in answer:
            return  # unknown
        refused = [*answer.get("lease_lost", ()), *answer.get("duplicate", ())]
        if grant.receipt in refused:
            self.judge.not_acked(grant)
        else:
            self.judge.acked(grant, newest)


class SessionConsumer(Consumer):
    def __init__(
        self, name: str, queue: str, kind: str, port: int, seed: int, judge: Judge
    ) -> None:
        super().__init__(name, queue, seed, judge)
        self._session = Session(
            kind, port, self.rng, judge, hear=self._hear, welcomed=self._welcomed, held=self._held
        )
        self._sub = 0
        self._explicit = False
        self._none = False
        self._holding: dict[str, Grant] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._session.run)
            while True:
                await trio.sleep(self.rng.uniform(0.2, 2))
                if not self.calm:
                    await self._fidget()

    async def _fidget(self) -> None:
        draw = self.rng.random()
        try:
            if draw < 0.10:
                self._session.drop()
            elif draw < 0.13:
                await self._session.end()
            elif draw < 0.25:
                credit = self.rng.choice((0, 1, 5, 50))
                await self._session.say({"op": "credit", "sub": self._sub, "credit": credit})
            elif draw < 0.30:
                await self._session.request({"op": "unsubscribe", "sub": self._sub})
                await self._subscribe()
        except Lost:
            pass

    async def become_calm(self) -> None:
        """Well from now on: enough credit, and everything is acked."""
        self.calm = True
        self._session.drop()

    def _held(self) -> dict[str, list[str]]:
        return {str(self._sub): list(self._holding)}

    async def _welcomed(self, resumed: bool) -> None:
        if not resumed:
            self._holding.clear()
            await self._subscribe()
        elif self.calm:
            await self._session.say({"op": "credit", "sub": self._sub, "credit": 100})

    async def _subscribe(self) -> None:
        self._explicit = self.rng.random() < 0.5
        self._none = not self.calm and self.queue == "junk" and self.rng.random() < 0.2
        frame = {"op": "subscribe", "from": self.queue, "credit": self.rng.choice((1, 7, 40))}
        if self.calm:
            frame["credit"] = 100
        if self._explicit:
            frame["start"] = "explicit"
        if self._none:
            frame["ack"] = "none"
        while True:
            answer = await self._session.request(frame)
            if answer["op"] == "subscribed":
                self._sub = answer["sub"]
                return
            await trio.sleep(0.2)

    def _hear(self, frame: Frame) -> None:
        assert self._nursery is not None
        op = frame["op"]
        if op == "deliver":
            for message in frame["messages"]:
                grant = self.judge.delivered(self.queue, message, message["body"])
                if grant is not None and grant.receipt:
                    self._holding[grant.receipt] = grant
                    grant.sub = frame["sub"]
                    self._nursery.start_soon(self._work, grant)
        elif op == "lease_lost":
            for receipt in frame["receipts"]:
                self._holding.pop(receipt, None)  # runs are rare here, and cost nothing
        elif op == "ended":
            self._nursery.start_soon(self._subscribe_again)

    async def _subscribe_again(self) -> None:
        try:
            await trio.sleep(0.1)
            await self._subscribe()
        except Lost:
            pass

    async def _work(self, grant: Grant) -> None:
        if not self.calm:
            await trio.sleep(self.rng.expovariate(30))
        if grant.receipt not in self._holding:
            return
        try:
            if self._explicit:
                start = {"op": "start", "sub": grant.sub, "receipts": [grant.receipt]}
                await self._session.say(start)
            await self.treat(grant)
        except Lost:
            pass
        finally:
            self._holding.pop(grant.receipt, None)

    async def settle(self, verb: str, grant: Grant, **more: Any) -> Frame | None:
        frame = {"op": verb, "sub": grant.sub, "receipts": [grant.receipt], **more}
        if not self.calm and self.rng.random() < 0.1:
            await self._session.say(frame)
            return None
        return await self._session.request(frame)


class HttpConsumer(Consumer):
    def __init__(self, name: str, queue: str, port: int, seed: int, judge: Judge) -> None:
        super().__init__(name, queue, seed, judge)
        self._receive, self._settle = Http(port), Http(port)

    async def become_calm(self) -> None:
        self.calm = True

    async def run(self) -> None:
        async with self._receive, self._settle:
            while True:
                try:
                    await self._poll()
                except Gone:
                    self.judge.breaks += 1
                    await trio.sleep(self.rng.uniform(0.05, 0.3))

    async def _poll(self) -> None:
        body = {"max": self.rng.choice((1, 5, 20)), "wait_ms": self.rng.choice((0, 300, 1_500))}
        patience = 0.2 if not self.calm and self.rng.random() < 0.05 else 60
        with trio.move_on_after(patience) as gave_up:
            status, answer = await self._receive.ask(
                "POST", f"/v1/queues/{self.queue}/receive", body
            )
        if gave_up.cancelled_caught:
            self.judge.breaks += 1
            return
        if status != 200:
            if status not in (404, 429, 503):
                self.judge.broken("server_error", f"receive: {status} {answer}")
            await trio.sleep(0.1)
            return
        for message in answer["messages"]:
            grant = self.judge.delivered(self.queue, message, message["body"])
            if grant is not None:
                await self.treat(grant)

    async def settle(self, verb: str, grant: Grant, **more: Any) -> Frame | None:
        body = {"receipts": [grant.receipt], **more}
        path = f"/v1/queues/{self.queue}/{verb}"
        status, answer = await self._settle.ask("POST", path, body)
        if status == 200:
            found: Frame = answer
            return found
        if status == 409:
            return {"lease_lost": [grant.receipt]}
        if status not in (404, 429, 503):
            self.judge.broken("server_error", f"{verb}: {status} {answer}")
        return {"code": answer["error"]["code"]}
