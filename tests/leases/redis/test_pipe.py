"""The thread with the connection, with a connection that is a script."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from redis.exceptions import ResponseError

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.connection import Connection
from pushlane_leases.redis.pipe import Pipe


class Echo(Connection):
    """Answers each command with its first argument, when it is let."""

    def __init__(self) -> None:
        self.rounds: list[list[Any]] = []
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()
        self.closed = False

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        self.rounds.append([command[1] for command in commands])
        self.entered.set()
        self.free.wait(60)
        if ("ECHO", "fail") in commands:
            raise LeaseCacheError("gone")
        return [ResponseError("OOM") if word == "oom" else word for _, word in commands]

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def opened(pending: int = 100, commands: int = 4) -> AsyncIterator[tuple[Pipe, Echo]]:
    echo = Echo()
    pipe = Pipe(echo, pending, commands)
    try:
        yield pipe, echo
    finally:
        echo.free.set()
        await pipe.close()
        assert echo.closed


async def held(pipe: Pipe, echo: Echo, nursery: trio.Nursery) -> None:
    """One call is under way, and doesn't come back yet."""
    echo.free.clear()
    echo.entered.clear()
    nursery.start_soon(pipe.ask, [("ECHO", "held")])
    await trio.to_thread.run_sync(echo.entered.wait)


async def test_an_answer_for_each_command() -> None:
    async with opened() as (pipe, echo):
        assert await pipe.ask([("ECHO", 1), ("ECHO", 2)]) == [1, 2]
        assert await pipe.ask([]) == []
        assert echo.rounds == [[1, 2]]


async def test_what_gathers_meanwhile_goes_together() -> None:
    answers: dict[int, list[Any]] = {}

    async def ask(pipe: Pipe, number: int) -> None:
        answers[number] = await pipe.ask([("ECHO", number)])

    async with opened() as (pipe, echo):
        async with trio.open_nursery() as nursery:
            await held(pipe, echo, nursery)
            for number in range(6):
                nursery.start_soon(ask, pipe, number)
            await trio.testing.wait_all_tasks_blocked()
            echo.free.set()
        assert answers == {number: [number] for number in range(6)}
        assert list(map(len, echo.rounds)) == [1, 4, 2]


async def test_an_error_is_that_call_s_own_and_a_failure_everybody_s() -> None:
    faults: dict[str, str] = {}

    async def ask(pipe: Pipe, word: str) -> None:
        try:
            await pipe.ask([("ECHO", word)])
        except LeaseCacheError as fault:
            faults[word] = str(fault)

    async with opened() as (pipe, echo):
        for words in (["a", "oom"], ["b", "fail"]):
            async with trio.open_nursery() as nursery:
                await held(pipe, echo, nursery)
                for word in words:
                    nursery.start_soon(ask, pipe, word)
                await trio.testing.wait_all_tasks_blocked()
                echo.free.set()
        assert faults == {"oom": "ResponseError: OOM", "b": "gone", "fail": "gone"}
        assert await pipe.ask([("ECHO", "c")]) == ["c"]


async def test_whoever_is_cancelled_leaves_at_once() -> None:
    async with opened() as (pipe, echo), trio.open_nursery() as nursery:
        await held(pipe, echo, nursery)
        with trio.move_on_after(0.05) as waiting:
            await pipe.ask([("ECHO", "never begun")])
        nursery.cancel_scope.cancel()
        assert waiting.cancelled_caught
        with trio.CancelScope(shield=True):
            echo.free.set()
            assert await pipe.ask([("ECHO", 1)]) == [1]
        assert echo.rounds == [["held"], [1]]


async def test_past_the_bound_calls_are_refused() -> None:
    async with opened(pending=2) as (pipe, echo), trio.open_nursery() as nursery:
        await held(pipe, echo, nursery)
        for number in range(2):
            nursery.start_soon(pipe.ask, [("ECHO", number)])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(LeaseCacheError, match="2 calls wait for Redis"):
            await pipe.ask([("ECHO", 2)])
        echo.free.set()


async def test_a_close_refuses_what_waits_and_ends_the_thread() -> None:
    echo = Echo()
    pipe = Pipe(echo, 10, 10)
    faults = []
    refused = trio.Event()

    async def ask() -> None:
        try:
            await pipe.ask([("ECHO", 1)])
        except LeaseCacheError as fault:
            faults.append(str(fault))
            refused.set()

    async with trio.open_nursery() as nursery:
        await held(pipe, echo, nursery)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(pipe.close)
        await refused.wait()
        echo.free.set()
    assert faults == ["the lease cache closes"]
    assert echo.rounds == [["held"]]
    assert not pipe._thread.is_alive()


def test_answers_that_come_after_the_end_of_trio() -> None:
    echo = Echo()
    pipes: list[Pipe] = []

    async def main() -> None:
        pipes.append(Pipe(echo, 10, 10))
        async with trio.open_nursery() as nursery:
            await held(pipes[0], echo, nursery)
            nursery.cancel_scope.cancel()

    trio.run(main)
    echo.free.set()
    pipes[0]._waiting.close()
    pipes[0]._thread.join(30)
    assert not pipes[0]._thread.is_alive()
