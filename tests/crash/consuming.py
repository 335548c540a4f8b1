"""Consumers: quick, slow past their lease, failing, rejecting; through the SDK and plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

import pushlane
from pushlane.core.queues import Call
from pushlane_history import event as history
from tests.crash.load import CREDIT, DEAD, JOBS, LEASE_MS, POLLED, SETTINGS, SLOW_S, WORK
from tests.crash.producing import Connect
from tests.crash.recorder import Recorder


class Handling:
    """What becomes of a message, and the notes on it."""

    def __init__(self, recorder: Recorder, rng: Random) -> None:
        self._recorder = recorder
        self._rng = rng
        self.is_calm = False

    def calm(self) -> None:
        """From now on everything is acked."""
        self.is_calm = True

    def granted(
        self, queue: str, id: str, uid: str, receipt: str, fence: int, attempt: int
    ) -> None:
        at = self._recorder.at
        self._recorder.add(
            history.Grant(at, queue, id, uid, receipt=receipt, fence=fence, attempt=attempt)
        )

    async def handle(self, message: pushlane.Message) -> None:
        roll = 1.0 if self.is_calm else self._rng.random()
        if roll < 0.03:
            await asyncio.sleep(SLOW_S)
        elif roll < 0.05:
            await self._kept(message)
            return
        elif roll < 0.95:
            await asyncio.sleep(self._rng.uniform(0, 0.03))
        if roll < 0.85 or roll >= 0.95:
            await self.settle("ack", message, message.ack())
        elif roll < 0.90:
            await self.settle("nack", message, message.nack("no", self._rng.choice([None, 0, 50])))
        elif roll < 0.92:
            await self.settle("reject", message, message.reject("never"))
        else:
            await self._extended(message)

    async def _kept(self, message: pushlane.Message) -> None:
        """Longer than its lease, which is extended meanwhile."""
        op = self._recorder.op()
        asked = False
        result: history.Result = "ok"
        try:
            async with message:
                await asyncio.sleep(SLOW_S)
                self._ask(op, "ack", message)
                asked = True
        except pushlane.LeaseLost:
            result = "lease_lost"
        except pushlane.PushlaneError:
            result = "unknown"
        if asked:
            self._recorder.add(history.Verdict(self._recorder.at, op, result))

    async def _extended(self, message: pushlane.Message) -> None:
        await asyncio.sleep(LEASE_MS / 2_000)
        await self.settle("extend", message, message.extend(LEASE_MS))
        await asyncio.sleep(LEASE_MS / 1_500)
        await self.settle("ack", message, message.ack())

    async def settle(
        self, kind: history.Kind, message: pushlane.Message, call: Awaitable[None]
    ) -> None:
        op = self._recorder.op()
        self._ask(op, kind, message)
        result: history.Result = "ok"
        try:
            await call
        except pushlane.LeaseLost:
            result = "lease_lost"
        except pushlane.Conflict:
            raise  # settled twice: a mistake of this test, or of the SDK
        except pushlane.PushlaneError:
            result = "unknown"
        self._recorder.add(history.Verdict(self._recorder.at, op, result))

    def _ask(self, op: int, kind: history.Kind, message: pushlane.Message) -> None:
        self._recorder.add(history.Settle(self._recorder.at, op, kind, receipt_of(message)))


def receipt_of(message: pushlane.Message) -> str:
    """Programs need no receipts, so the SDK keeps them to itself; a history does."""
    receipt = message._lease.message.receipt
    assert receipt is not None
    return receipt


class Consumption:
    """All consumers of a process, until they are cancelled."""

    def __init__(self, connect: Connect, recorder: Recorder, rng: Random) -> None:
        self._connect = connect
        self._recorder = recorder
        self._handling = Handling(recorder, rng)
        self._rng = rng
        self._ended = asyncio.Event()

    def calm(self) -> None:
        self._handling.calm()

    def end(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        async with (
            self._connect(SETTINGS) as one, self._connect(SETTINGS) as two,
            self._connect(SETTINGS) as dead, asyncio.TaskGroup() as group,
        ):  # fmt: skip
            tasks = [
                group.create_task(each)
                for each in (
                    self._subscribe(one, WORK), self._subscribe(one, JOBS),
                    self._subscribe(two, WORK), self._consume(two, JOBS),
                    self._consume(dead, DEAD[WORK]), self._consume(dead, DEAD[JOBS]),
                    self._poll(dead, POLLED),
                )
            ]  # fmt: skip
            await self._ended.wait()
            for task in tasks:
                task.cancel()

    async def _subscribe(self, client: pushlane.Client, queue: str) -> None:
        """An iterator, whose messages are worked on at once."""
        subscription = await client.subscribe(queue, credit=CREDIT, lease_ms=LEASE_MS)
        async with asyncio.TaskGroup() as group:
            async for message in subscription:
                self._note(queue, message)
                group.create_task(self._handling.handle(message))

    async def _consume(self, client: pushlane.Client, queue: str) -> None:
        """A handler, which settles its messages itself: of the SDK's own acks nobody hears."""

        async def handler(message: pushlane.Message) -> None:
            self._note(queue, message)
            if queue in DEAD.values():
                await self._handling.settle("ack", message, message.ack())
            else:
                await self._handling.handle(message)

        await client.consume(queue, handler, concurrency=20, lease_ms=LEASE_MS)

    def _note(self, queue: str, message: pushlane.Message) -> None:
        assert message.fence is not None
        self._handling.granted(
            queue, message.id, message.body["uid"], receipt_of(message), message.fence,
            message.attempt,
        )  # fmt: skip

    # Plain HTTP

    async def _poll(self, client: pushlane.Client, queue: str) -> None:
        """A consumer without a clock: it asks for its ack however late it is."""
        while True:
            try:
                await self._receive(client, queue)
            except pushlane.PushlaneError:
                await asyncio.sleep(0.1)

    async def _receive(self, client: pushlane.Client, queue: str) -> None:
        options = {"max": 4, "wait_ms": 500, "lease_ms": LEASE_MS}
        answer = await _post(client, queue, "receive", options)
        for each in answer["messages"]:
            self._handling.granted(
                queue, each["id"], each["body"]["uid"], each["receipt"], each["fence"],
                each["attempt"],
            )  # fmt: skip
        is_slow = not self._handling.is_calm and self._rng.random() < 0.1
        await asyncio.sleep(SLOW_S if is_slow else self._rng.uniform(0, 0.1))
        for each in answer["messages"]:
            await self._ack(client, queue, each["receipt"])

    async def _ack(self, client: pushlane.Client, queue: str, receipt: str) -> None:
        recorder, op = self._recorder, self._recorder.op()
        recorder.add(history.Settle(recorder.at, op, "ack", receipt))
        result: history.Result = "unknown"
        try:
            answer = await _post(client, queue, "ack", {"receipts": [receipt]})
            result = "lease_lost" if answer.get("lease_lost") else "ok"
        except pushlane.LeaseLost:
            result = "lease_lost"
        finally:
            recorder.add(history.Verdict(recorder.at, op, result))


async def _post(
    client: pushlane.Client, queue: str, action: str, body: dict[str, Any]
) -> dict[str, Any]:
    answer = await client.queues._request(Call("POST", f"/v1/queues/{queue}/{action}", body))
    assert isinstance(answer, dict)
    return answer
