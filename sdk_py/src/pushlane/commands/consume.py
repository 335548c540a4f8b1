"""`pushlane consume`: print a queue's messages, or hand each to a program.

A message is acked when it was printed, or when the program ended with 0; another end nacks it. What
was reserved for us and not begun goes back when we leave.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pushlane.commands.exits import fail
from pushlane.commands.output import Advance, Json, nobody_reads, note, progress
from pushlane.commands.server import HERE, Server

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client
    from pushlane.asyncio.message import Message
    from pushlane.asyncio.subscription import Subscription

CREDIT = 64
"""Messages here at once, when no --max says less."""


def consume(
    queue: str,
    /,
    *,
    max: Annotated[int | None, Parameter(name="--max")] = None,
    exec: Annotated[str | None, Parameter(name="--exec")] = None,
    idle: float | None = None,
    lease_ms: int | None = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Take messages of a queue and print their bodies, until Ctrl-C or SIGTERM.

    A message is acked once it is printed, or once the program of --exec has ended with 0: then it
    is gone. To look without taking: pushlane queue peek.

    Parameters
    ----------
    queue
        The queue's name. It is created if it doesn't exist.
    max
        Stop after this many messages.
    exec
        A shell command to run for each message, with the body as its input and MESSAGE_ID,
        MESSAGE_KEY, MESSAGE_ATTEMPT, MESSAGE_FENCE, MESSAGE_QUEUE and MESSAGE_HEADERS (JSON) in its
        environment. When it fails the message is delivered again later.
    idle
        Stop when nothing has arrived for this many seconds.
    lease_ms
        How long a message is leased before another consumer gets it; it is extended while --exec
        runs. The queue's own unless given.
    json
        Print (or hand over) whole messages as JSON, one a line, instead of bodies.
    """
    from pushlane.commands.run import run

    if max is not None and max < 1:
        fail(f"--max is {max}: at least 1")
    if idle is not None and not idle >= 0:
        fail(f"--idle is {idle}: at least 0")

    async def command(client: Client) -> int:
        credit = CREDIT if max is None else min(max, CREDIT)
        obstacle = await _obstacle(client, queue)
        subscription = await client.subscribe(queue, credit=credit, lease_ms=lease_ms)
        if obstacle is not None:
            note(obstacle)
        with progress("consuming", max) as advance:
            return await _take(subscription, _Taker(queue, json, exec), max, idle, advance)

    failed = run(server, command)
    if failed:
        fail(f"--exec failed on {failed} messages: they are delivered again later", 1)


async def _obstacle(client: Client, queue: str) -> str | None:
    """Why nothing may come for now, as far as we have the right to ask."""
    from pushlane.wire.errors import NotFound, PushlaneError

    try:
        row = await client.queues.get(queue)
    except NotFound:
        return f"there was no queue {queue}: it is made now, and empty"
    except PushlaneError:
        return None
    if row.get("config", row).get("paused"):
        return f"{queue} is paused: nothing comes until `pushlane queue resume {queue}`"
    return None


async def _take(
    subscription: Subscription,
    taker: _Taker,
    most: int | None,
    idle: float | None,
    advance: Advance,
) -> int:
    """Until there were enough, or nothing came. How many failed."""
    from pushlane.wire.errors import LeaseLost

    taken = failed = 0
    while most is None or taken < most:
        try:
            async with asyncio.timeout(idle):
                message = await anext(subscription)
        except (TimeoutError, StopAsyncIteration):
            break
        taken += 1
        try:
            await taker.take(message)
        except Failed as failure:
            failed += 1
            note(f"{message.id}: {failure}")
        except LeaseLost:
            failed += 1
            note(f"{message.id}: its lease was lost: it is delivered again")
        advance(1)
    return failed


class Failed(Exception):
    """The program didn't end with 0."""


class _Taker:
    def __init__(self, queue: str, json: bool, command: str | None) -> None:
        self._queue = queue
        self._json = json
        self._command = command

    async def take(self, message: Message) -> None:
        """Acks when it returns, nacks when it raises."""
        async with message:
            text = whole(message) if self._json else body_of(message)
            if self._command is None:
                sys.stdout.buffer.write(text + b"\n")
                sys.stdout.buffer.flush()
            else:
                await self._run(self._command, message, text)

    async def _run(self, command: str, message: Message, text: bytes) -> None:
        from pushlane.commands.program import run_program

        status = await run_program(command, text, environment(message, self._queue))
        if status != 0 and nobody_reads():
            raise BrokenPipeError  # the next ones would fail like this one
        if status != 0:
            raise Failed(f"`{command}` ended with {status}")


def body_of(message: Message) -> bytes:
    """What a person wants to see: a string without its quotes, bytes as they are, else JSON."""
    if message.data is not None:
        return message.data
    if isinstance(message.body, str):
        return message.body.encode()
    return message.raw or b"null"


def whole(message: Message) -> bytes:
    """The message as one line of JSON. Its body stays as it was published, but for line ends."""
    import msgspec

    value: dict[str, Any] = {"id": message.id}
    if message.data is not None:
        value["data"] = message.data
    else:
        value["body"] = msgspec.Raw(_one_line(message.raw or b"null"))
    value |= {
        "key": message.key,
        "headers": message.headers or None,
        "attempt": message.attempt,
        "fence": message.fence,
        "published_at": message.published_at,
        "dead": message.dead,
    }
    return msgspec.json.encode({name: item for name, item in value.items() if item is not None})


def _one_line(raw: bytes) -> bytes:
    """JSON has line ends between tokens only, so they may go."""
    return raw.replace(b"\n", b" ").replace(b"\r", b" ")


def environment(message: Message, queue: str) -> dict[str, str]:
    import msgspec

    return {
        "MESSAGE_ID": message.id,
        "MESSAGE_QUEUE": queue,
        "MESSAGE_KEY": message.key or "",
        "MESSAGE_ATTEMPT": str(message.attempt),
        "MESSAGE_FENCE": str(message.fence),
        "MESSAGE_HEADERS": msgspec.json.encode(message.headers).decode(),
    }
