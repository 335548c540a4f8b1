"""A session over raw frames: it comes back after a drop, and resumes where the server lets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from tests.stress.judge import Judge
from tests.stress.link import Frame, Link, Lost, open_link

ANSWER_S = 60.0
RESUME = 0.6
"""The share of reconnects that resume."""


class Session:
    """`hear` gets what is no answer; `welcomed` is called after each hello."""

    def __init__(
        self,
        kind: str,
        port: int,
        rng: Random,
        judge: Judge,
        *,
        hear: Callable[[Frame], None] = lambda _: None,
        welcomed: Callable[[bool], Awaitable[None]],
        held: Callable[[], dict[str, list[str]]] = dict,
        producer: str | None = None,
    ) -> None:
        self._kind, self._port, self._rng, self._judge = kind, port, rng, judge
        self._hear, self._welcomed, self._held = hear, welcomed, held
        self._hello: Frame = {"op": "hello"} | ({"producer": producer} if producer else {})
        self._link: Link | None = None
        self._scope = trio.CancelScope()
        self._session: str | None = None
        self._id = 0
        self._waiting: dict[int, tuple[trio.Event, list[Frame]]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                with trio.CancelScope() as self._scope:
                    await self._connection()
            except* Lost:
                pass
            self._judge.breaks += 1
            await trio.sleep(self._rng.uniform(0.02, 0.4))

    async def _connection(self) -> None:
        try:
            async with open_link(self._kind, self._port) as link, trio.open_nursery() as nursery:
                resumed = await nursery.start(self._read, link)
                self._link = link
                await self._welcomed(resumed)
        finally:
            self._link = None
            for event, _ in self._waiting.values():
                event.set()
            self._waiting.clear()

    async def _read(self, link: Link, task_status: trio.TaskStatus[bool]) -> None:
        """Say hello and take what comes, until the link is lost."""
        hello = self._hello
        if self._session is not None and self._rng.random() < RESUME:
            hello = {**hello, "resume": {"session": self._session, "held": self._held()}}
        await link.send(hello)
        while True:
            for frame in await link.receive():
                if frame["op"] == "welcome":
                    self._session = frame["session"]
                    task_status.started(bool(frame["resumed"]))
                else:
                    self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.get("code") == "internal":
            self._judge.broken("server_error", str(frame))
        waiting = self._waiting.pop(frame["id"], None) if "id" in frame else None
        if waiting is not None:
            waiting[1].append(frame)
            waiting[0].set()
        else:
            self._hear(frame)

    @property
    def is_up(self) -> bool:
        return self._link is not None

    async def request(self, frame: Frame) -> Frame:
        """Its answer; `Lost` when there is none."""
        self._id += 1
        number, answer = self._id, list[Frame]()
        event = trio.Event()
        self._waiting[number] = event, answer
        await self.say({**frame, "id": number})
        with trio.move_on_after(ANSWER_S):
            await event.wait()
        self._waiting.pop(number, None)
        if not answer:
            raise Lost
        return answer[0]

    async def say(self, frame: Frame) -> None:
        if self._link is None:
            raise Lost
        await self._link.send(frame)

    def drop(self) -> None:
        """Break the connection, as a network would."""
        self._scope.cancel()

    async def end(self) -> None:
        """Close in good order: the session is over, and a new one begins."""
        if self._link is not None:
            self._session = None
            try:
                await self._link.end()
            finally:
                self.drop()
