"""A campaign: rounds of chaos with kills, each followed by a calm in which all must drain."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import trio

from tests.crash.node import Node
from tests.stress.consuming import HttpConsumer, SessionConsumer
from tests.stress.http_client import Gone, Http
from tests.stress.judge import Judge, Message
from tests.stress.load import CONFIGS, CONSUMERS, DEAD, PRODUCERS, QUEUES, SMALL
from tests.stress.managing import Manager
from tests.stress.producing import Producer

CHAOS_S = 20.0
DRAIN_S = 120.0
"""Far longer than any lease or backoff of these queues, for machines that are busy."""
KILL_S = (1.0, 5.0)
GRACEFUL = 0.2
"""The share of stops that are a SIGTERM."""
SHOWN = 10


class Campaign:
    def __init__(
        self,
        seconds: float,
        seed: int,
        folder: Path,
        say: Callable[[str], None] = lambda _: None,
        plant: str = "",
    ) -> None:
        self._seconds, self._seed, self._say = seconds, seed, say
        self._rng = Random(f"{seed} campaign")
        self._node = Node(folder, plant)
        self.judge = Judge()
        self.kills = 0
        self.rounds = 0

    def run(self) -> list[str]:
        """What was violated; nothing is left running."""
        try:
            trio.run(self._run)
        finally:
            self._node.close()
        return self.judge.violations

    async def _run(self) -> None:
        await self._start()
        for name, config in CONFIGS.items():
            self._node.ask("PUT", f"/v1/queues/{name}", config)
        end = time.monotonic() + self._seconds
        while time.monotonic() < end and not self.judge.violations:
            self.rounds += 1
            await self._round(min(CHAOS_S, max(5.0, end - time.monotonic())))
            counts = self.judge.counts
            self._say(
                f"round {self.rounds}: {self.kills} kills, {counts['confirmed']} confirmed,"
                f" {counts['deliveries']} deliveries, {counts['acked']} acked"
            )

    async def _start(self) -> None:
        self._node.spawn()  # a child dies with the thread that made it: not in a worker thread
        await trio.to_thread.run_sync(self._node.wait_until_ready)

    async def _round(self, seconds: float) -> None:
        port, seed, judge = self._node.port, self._seed * 1_000 + self.rounds, self.judge
        producers = [
            Producer(f"r{self.rounds}p{n}", kind, port, seed, judge)
            for n, kind in enumerate(PRODUCERS)
        ]
        consumers: list[SessionConsumer | HttpConsumer] = [
            HttpConsumer(f"c{n}", queue, port, seed, judge)
            if kind == "http"
            else SessionConsumer(f"c{n}", queue, kind, port, seed, judge)
            for n, (queue, kind) in enumerate(CONSUMERS)
        ]
        manager = Manager(f"r{self.rounds}m", port, seed, judge, producers[0].delayed)
        async with trio.open_nursery() as crowd:
            for consumer in consumers:
                crowd.start_soon(consumer.run)
            async with trio.open_nursery() as busy:
                for producer in producers:
                    busy.start_soon(producer.run)
                with trio.move_on_after(seconds):
                    async with trio.open_nursery() as chaos:
                        chaos.start_soon(manager.run)
                        chaos.start_soon(self._kill_now_and_then)
                        chaos.start_soon(self._stop_when_violated, chaos.cancel_scope)
                for producer in producers:
                    producer.stopping = True
            await manager.calm()
            for consumer in consumers:
                await consumer.become_calm()
            for n, queue in enumerate((*DEAD, SMALL)):
                crowd.start_soon(HttpConsumer(f"e{n}", queue, port, seed, judge).run)
            async with Http(port) as http:
                await self._drain(http)
            crowd.cancel_scope.cancel()

    async def _kill_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._rng.uniform(*KILL_S))
            with trio.CancelScope(shield=True):
                self.kills += 1
                if self._rng.random() < GRACEFUL:
                    code = await trio.to_thread.run_sync(self._node.terminate)
                    if code != 0:
                        self.judge.broken("server_error", f"a stop ended with {code}")
                else:
                    await trio.to_thread.run_sync(self._node.kill)
                await self._start()

    async def _stop_when_violated(self, chaos: trio.CancelScope) -> None:
        while not self.judge.violations:  # noqa: ASYNC110 - the judge has no tasks to wake
            await trio.sleep(0.5)
        chaos.cancel()

    # The calm

    async def _drain(self, http: Http) -> None:
        deadline = trio.current_time() + DRAIN_S
        while (stored := await self._stored(http)) and not self.judge.violations:
            if trio.current_time() > deadline:
                for queue, stats in stored.items():
                    self.judge.broken("stuck", f"{queue}: {stats} {await _next(http, queue)}")
                return
            await trio.sleep(0.2)
        if self.judge.violations:
            return
        lost = self.judge.unfinished()
        for message in lost[:SHOWN]:
            self.judge.broken("lost", f"{message} {await _told(http, message)}")
        self.judge.retire()

    async def _stored(self, http: Http) -> dict[str, object]:
        """The queues that are not empty, with their statistics."""
        found: dict[str, object] = {}
        for queue in QUEUES:
            try:
                status, stats = await http.ask("GET", f"/v1/queues/{queue}/stats")
            except Gone:
                status, stats = 0, None
            if status not in (200, 404) or (
                stats and (stats.get("stored") or stats.get("pending"))
            ):
                found[queue] = stats
        return found


async def _next(http: Http, queue: str) -> object:
    """What stands first, and why it is not delivered."""
    try:
        _, page = await http.ask("GET", f"/v1/queues/{queue}/peek?limit=1")
        path = f"/v1/queues/{queue}/messages/{page['messages'][0]['id']}/explain"
        return (await http.ask("GET", path))[1]
    except (Gone, LookupError):
        return None


async def _told(http: Http, message: Message) -> object:
    try:
        path = f"/v1/queues/{message.queue}/messages/{message.id}/explain"
        return (await http.ask("GET", path))[1]
    except Gone:
        return None
