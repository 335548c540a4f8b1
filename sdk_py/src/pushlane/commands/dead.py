"""`pushlane dead`: the messages that a queue gave up on.

A queue is named, and its dead-letter queue found: the one that its configuration names, else
`NAME.dead`. The name of a dead-letter queue itself will do, too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from pushlane.commands.confirm import Confirm, Yes, confirm
from pushlane.commands.exits import fail
from pushlane.commands.output import FLAG, Json, print_json
from pushlane.commands.queue import Limit, peek_messages, purged, show_messages
from pushlane.commands.server import HERE, Server

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client

DEAD = ".dead"
AT_LEAST_ONE = Number(gte=1)

Cause = Literal[
    "max_attempts", "max_deliveries", "expired", "rejected", "overflow", "no_queue", "late",
    "damaged",
]  # fmt: skip

app = App(
    name="dead",
    help="List, redrive and purge dead letters: messages that failed too often, expired or were "
    "rejected. QUEUE is the queue that they come from.",
)

Queue = Annotated[str, Parameter(help="The queue that they come from, or a dead-letter queue.")]


@app.command(name="list")
def list_dead(
    queue: Queue,
    /,
    *,
    max: Limit = 100,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """List a queue's dead letters: what they are, and why they died."""
    from pushlane.commands.run import run
    from pushlane.wire.errors import NotFound

    async def command(client: Client) -> list[dict[str, Any]]:
        name = await _dead_letters(client, queue)
        try:
            return await peek_messages(client, name, max)
        except NotFound:  # it is made by the first dead letter
            return []

    show_messages(run(server, command), json, f"{queue} has no dead letters")


@app.command
def redrive(
    queue: Queue,
    /,
    *,
    max: Annotated[int | None, Parameter(name="--max", validator=AT_LEAST_ONE)] = None,
    to: str | None = None,
    cause: Cause | None = None,
    key: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
    rate: Annotated[int | None, Parameter(validator=AT_LEAST_ONE)] = None,
    dry_run: Annotated[bool, FLAG] = False,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Send dead letters back to where they came from, or to another queue.

    Without options, all that are there now.

    Parameters
    ----------
    max
        Maximum number of messages.
    to
        Send them to this queue instead.
    cause
        Only those with this cause.
    key
        Only those with this key.
    older_than
        Only those that died at least this long ago, such as 30s, 15m, 12h or 7d.
    newer_than
        Only those that died within this time.
    rate
        Messages per second.
    dry_run
        Only count them.
    """
    from pushlane.commands.run import run

    options: dict[str, Any] = {
        "max": max,
        "to": to,
        "cause": cause,
        "key": key,
        "until_at": _ago(older_than),
        "from_at": _ago(newer_than),
        "rate": rate,
        "dry_run": dry_run or None,
    }
    options = {name: value for name, value in options.items() if value is not None}

    async def command(client: Client) -> dict[str, Any]:
        return await client.queues.redrive(await _dead_letters(client, queue), **options)

    answer = run(server, command)
    if json:
        print_json(answer)
    else:
        print(f"{'would redrive' if dry_run else 'redriven'}: {answer.get('redriven', 0)}")


@app.command
def purge(
    queue: Queue,
    /,
    *,
    yes: Yes = False,
    confirmed: Confirm = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Drop all dead letters of a queue. It asks for the name once more."""
    from pushlane.commands.run import run

    confirm(queue, f"all dead letters of {queue}", yes, confirmed)

    async def command(client: Client) -> dict[str, Any]:
        return await client.queues.purge(await _dead_letters(client, queue))

    answer = run(server, command)
    if json:
        print_json(answer)
    else:
        print(purged(f"dead letters of {queue}", answer))


def _ago(age: str | None) -> int | None:
    """The time (Unix ms) that was so long ago."""
    from pushlane.wire.duration import parse_duration
    from pushlane.wire.errors import BadRequest

    if age is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - parse_duration(age)
    except BadRequest as error:
        fail(str(error))


async def _dead_letters(client: Client, queue: str) -> str:
    """The name of a queue's dead-letter queue."""
    if queue.endswith(DEAD):
        return queue
    row = await client.queues.get(queue)
    named = row.get("config", row).get("dead_letter")
    if named == "":
        fail(f"{queue} keeps no dead letters: its dead_letter is empty")
    return named or queue + DEAD
