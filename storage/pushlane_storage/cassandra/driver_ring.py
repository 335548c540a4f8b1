"""The ring over the Cassandra driver.

A request takes a turn (at most `in_flight` are under way; others wait, they don't time out), goes
to the sender's thread, and from there to the driver: sending may block for a moment when a node
dies, so it doesn't happen in the trio loop. One whose statement is not prepared yet comes back to
the sender when it is. Answers come in the driver's thread. They gather in a list, and one hop into
the loop takes all that are there.

Heartbeats, the roster, node rows and slot rows have a line and turns of their own. A hundred
thousand writes may wait, and the one behind them that says "I am alive" must not: its sender would
be fenced.

Reads and plain writes whose outcome is unknown are sent again a few times, to another node if there
is one. If a try after that is refused, the outcome stays unknown: the first may have landed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

import outcome
import trio

from pushlane_storage.cassandra import statements
from pushlane_storage.cassandra.connection import Connection, before_sending, outcome_of
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import (
    Change,
    Delete,
    Level,
    Numbers,
    Range,
    Row,
    Table,
    Write,
    check_change,
    check_range,
    check_write,
)
from pushlane_storage.cassandra.statements import Statement
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES, ROSTER, SLOTS
from pushlane_storage.interface import Outcome, StoreRefused, StoreUnknown

if TYPE_CHECKING:
    from cassandra.cluster import ResponseFuture

URGENT = frozenset(table.name for table in (HEARTBEATS, ROSTER, NODES, SLOTS))
"""Tables that say who is alive and who owns what."""
Answer = Callable[[list[Row] | None, Exception | None], None]


class Line:
    """Requests that wait for their turn; `room`: they are sent while fewer are under way."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.requests: deque[Request] = deque()


class Request:
    __slots__ = (
        "answer", "awaited", "error", "future", "level", "line", "queue", "repeatable", "rows",
        "serial", "tries",
    )  # fmt: skip

    def __init__(
        self,
        queue: list[Statement],
        level: int,
        serial: int,
        tries: int,
        answer: Answer,
        line: Line,
    ) -> None:
        self.queue = queue
        """What is sent."""
        self.level = level
        self.serial = serial
        self.tries = tries
        """How often it may still be sent."""
        self.repeatable = tries > 1
        self.awaited = 0
        """The try whose answer is awaited. The driver may answer one twice: two nodes were asked,
        or the answer comes together with the time-out."""
        self.answer = answer
        self.line = line
        self.future: ResponseFuture | None = None
        self.rows: list[Row] | None = None
        self.error: Exception | None = None


class DriverRing:
    def __init__(self, connection: Connection, limits: Limits, *, owns: bool = True) -> None:
        """`owns`: the connection is closed with it."""
        self._numbers = Numbers()
        self._connection = connection
        self._owns = owns
        self._keyspace = connection.address.keyspace
        self._limits = limits
        self._levels = _levels(connection.address.is_local)
        self._token = trio.lowlevel.current_trio_token()
        self._data = Line(limits.in_flight)
        self._urgent = Line(limits.in_flight + limits.urgent)
        self._outbox: SimpleQueue[Request | None] = SimpleQueue()
        self._arrived: list[Request] = []
        self._lock = Lock()
        self._sender = Thread(target=self._send_all, name="pushlane-cassandra", daemon=True)
        self._sender.start()
        self._idle = trio.Event()
        self._closed = False

    @property
    def numbers(self) -> Numbers:
        self._numbers.nodes_down = self._connection.down
        self._numbers.nodes_suspect = self._connection.suspects
        return self._numbers

    # Operations

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        check_write(write)
        level = write.level if isinstance(write, Write) else Level.QUORUM
        self._begin(
            write.table, self._texts(write), level, self._limits.tries, lambda _, error: done(error)
        )

    async def write(self, write: Write | Delete) -> None:
        check_write(write)
        level = write.level if isinstance(write, Write) else Level.QUORUM
        await self._call(write.table, self._texts(write), level, self._limits.tries)

    def _texts(self, write: Write | Delete) -> list[Statement]:
        if isinstance(write, Delete):
            return [statements.delete(self._keyspace, write)]
        return [statements.insert(self._keyspace, write, row) for row in write.rows]

    async def read(self, range: Range) -> list[Row]:
        check_range(range)
        text = statements.select(self._keyspace, range)
        return await self._call(range.table, [text], range.level, self._limits.tries)

    async def change(self, change: Change) -> bool:
        check_change(change)
        text = statements.change(self._keyspace, change)
        rows = await self._call(change.table, [text], Level.QUORUM, 1)
        return rows[0]["[applied]"] is True

    async def time(self) -> int:
        # As promptly as what says who is alive: the longer it takes, the less it says.
        rows = await self._call(NODES, [statements.TIME], Level.ONE, self._limits.tries)
        at: int = rows[0]["at"]
        return at

    async def close(self) -> None:
        """Wait for what is under way, and let go of the connection."""
        if self._closed:
            return
        self._closed = True
        with trio.move_on_after(self._limits.close_ms / 1000):
            while self._numbers.in_flight or self._numbers.waiting:
                self._idle = trio.Event()
                await self._idle.wait()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._shut_down)

    def _shut_down(self) -> None:
        self._outbox.put(None)
        self._sender.join()
        if self._owns:
            self._connection.close()

    # The way there

    def _begin(
        self, table: Table, queue: list[Statement], level: Level, tries: int, answer: Answer
    ) -> Request:
        plain, serial = (_GLOBAL if _is_global(table) else self._levels)[level]
        line = self._urgent if table.name in URGENT else self._data
        request = Request(queue, plain, serial, tries, answer, line)
        self._numbers.requests += 1
        if self._closed:
            self._reject(request, "the store is closed")
        elif self._numbers.in_flight < line.room:
            self._send(request)
        elif len(line.requests) < self._limits.waiting:
            line.requests.append(request)
            self._count_waiting()
        else:
            self._reject(request, f"{self._limits.waiting} requests wait for Cassandra already")
        return request

    def _count_waiting(self) -> None:
        self._numbers.waiting = len(self._urgent.requests) + len(self._data.requests)

    def _reject(self, request: Request, why: str) -> None:
        """Answer it, but not from inside the caller's call."""
        request.error = StoreRefused(why)
        self._numbers.refused += 1
        self._token.run_sync_soon(self._answer, request)

    def _send(self, request: Request) -> None:
        self._numbers.in_flight += 1
        request.tries -= 1
        request.awaited = 1 - request.awaited  # it was 0, or minus the number of the last try
        self._outbox.put(request)

    def _send_all(self) -> None:
        """The sender's thread."""
        limits = self._limits
        while (request := self._outbox.get()) is not None:
            try:
                text = self._connection.missing(request.queue)
                if text is not None:
                    self._connection.prepare_soon(text, partial(self._prepared, request))
                    continue
                future = self._connection.begin(
                    list(request.queue),
                    request.level,
                    request.serial,
                    request.repeatable,
                    limits.request_ms / 1000 if request.repeatable else limits.change_ms / 1000,
                )
            except Exception as error:
                self._arrive(request, request.awaited, None, before_sending(error))
                continue
            request.future = future
            args = (request, request.awaited)
            future.add_callbacks(
                self._succeeded, self._failed, callback_args=args, errback_args=args
            )

    def _prepared(self, request: Request, error: Exception | None) -> None:
        if error is None:
            self._outbox.put(request)
        else:
            self._arrive(request, request.awaited, None, before_sending(error))

    # The way back

    def _succeeded(self, rows: list[Row] | None, request: Request, number: int) -> None:
        self._arrive(request, number, rows or [], None)

    def _failed(self, error: Exception, request: Request, number: int) -> None:
        assert request.future is not None
        nodes = len(request.future.attempted_hosts)
        self._arrive(request, number, None, outcome_of(error, nodes))

    def _arrive(
        self, request: Request, number: int, rows: list[Row] | None, error: Exception | None
    ) -> None:
        with self._lock:
            if request.awaited != number:
                return
            request.awaited = -number
            request.rows = rows
            if isinstance(error, StoreRefused) and isinstance(request.error, StoreUnknown):
                error = request.error  # an earlier try may have landed
            request.error = error
            self._arrived.append(request)
            first = len(self._arrived) == 1
        if first:
            with suppress(trio.RunFinishedError):  # then nobody is left who could wait
                self._token.run_sync_soon(self._take_in)

    def _take_in(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        numbers = self._numbers
        for request in arrived:
            numbers.in_flight -= 1
            if isinstance(request.error, StoreUnknown) and request.tries:
                numbers.retries += 1
                self._send(request)
                continue
            numbers.unknown += isinstance(request.error, StoreUnknown)
            numbers.refused += isinstance(request.error, StoreRefused)
            self._answer(request)
        for line in (self._urgent, self._data):
            while line.requests and numbers.in_flight < line.room:
                self._send(line.requests.popleft())
        self._count_waiting()
        if self._closed and not numbers.in_flight:
            self._idle.set()

    def _answer(self, request: Request) -> None:
        request.answer(request.rows, request.error)

    async def _call(
        self, table: Table, queue: list[Statement], level: Level, tries: int
    ) -> list[Row]:
        """Whoever is cancelled here doesn't wait; what was sent may still be carried out."""
        await trio.lowlevel.checkpoint_if_cancelled()
        task = trio.lowlevel.current_task()
        given_up = False

        def answer(rows: list[Row] | None, error: Exception | None) -> None:
            if given_up:
                return
            result: outcome.Outcome[list[Row]]
            result = outcome.Value(rows or []) if error is None else outcome.Error(error)
            trio.lowlevel.reschedule(task, result)

        request = self._begin(table, queue, level, tries, answer)

        def abort(_: object) -> trio.lowlevel.Abort:
            nonlocal given_up
            given_up = True
            request.tries = 0
            with suppress(ValueError):
                request.line.requests.remove(request)
            return trio.lowlevel.Abort.SUCCEEDED

        rows: list[Row] = await trio.lowlevel.wait_task_rescheduled(abort)
        return rows


def _is_global(table: Table) -> bool:
    """Over all data centres: queues and slots are decided once for all of them.

    A node's row is read with every confirmation, and only ever fenced from its own data centre:
    no other may take its slots.
    """
    return table.lightweight and table is not NODES


def _levels(local: bool) -> dict[Level, tuple[int, int]]:
    """Plain and serial consistency, in the protocol's numbers (`cassandra.ConsistencyLevel`)."""
    one, quorum, serial = (10, 6, 9) if local else (1, 4, 8)
    return {
        Level.ONE: (one, serial),
        Level.QUORUM: (quorum, serial),
        Level.ALL: (5, serial),
        Level.SERIAL: (serial, serial),
    }


_GLOBAL = _levels(local=False)
