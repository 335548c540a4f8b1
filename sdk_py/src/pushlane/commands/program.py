"""Running a program for a message: its input is the body, its output goes where ours does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

KILL_AFTER = 5.0
"""Seconds that a program has to end after it was asked to …"""
LOOK_AGAIN = 0.02
"""… and the pause between two looks whether all of it has."""


async def run_program(command: str, text: bytes, variables: Mapping[str, str]) -> int:
    """Its exit status. When we are cancelled (the lease is lost, say), it is stopped."""
    process = await _start(command, {**os.environ, **variables})
    try:
        await _feed(process, text)
        return await process.wait()
    except BaseException:
        await _stop(process)
        raise


async def _start(command: str, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """A cancellation may come when it runs already: asyncio would end the shell alone then."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_shell(
            command, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _stop(await starting)
        raise


async def _feed(process: asyncio.subprocess.Process, text: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
        process.stdin.write(text)
        await process.stdin.drain()
    process.stdin.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """The shell and all that it started: they are a group of their own, and may outlive it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER):
                await process.wait()
                while _is_there(process.pid):  # noqa: ASYNC110 - others end it, nobody tells
                    await asyncio.sleep(LOOK_AGAIN)
                return


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
