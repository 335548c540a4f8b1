"""`pushlane queue`: making, changing and looking at queues."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from pushlane.commands.confirm import Confirm, Yes, confirm
from pushlane.commands.exits import NOT_FOUND, fail
from pushlane.commands.output import FLAG, Json, age, note, print_json, print_object, print_table
from pushlane.commands.server import HERE, Server

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client
    from pushlane.asyncio.queues import Queues

PAGE = 500
"""Queues or messages asked for at once when many are listed."""

LATER = {
    "ordering": "best_effort",
    "late_to_head": False,
    "encrypted": False,
    "durability": "quorum",
}
"""Settings of which servers know this value only so far: people are not offered them."""

COLUMNS = ("name", "depth", "in_flight", "oldest", "consumers", "paused")

app = App(name="queue", help="Create, change and look at queues.")

Settings = Annotated[
    str,
    Parameter(
        name="KEY=VALUE",
        allow_leading_hyphen=True,
        help="Such as lease_ms=60000, max_attempts=3, backoff_base_ms=500, dead_letter=failed, "
        "max_messages=1000; null restores a default. `pushlane queue show` lists all keys, and "
        "docs/configuration.md explains them under [queues.template].",
    ),
]
Limit = Annotated[
    int, Parameter(name="--max", validator=Number(gte=1), help="Maximum number of messages.")
]
Name = Annotated[str, Parameter(help="The queue's name.")]
Id = Annotated[str, Parameter(help="The message's id, as publish printed it.")]

Ensure = Annotated[bool, FLAG, Parameter(help="Leave a queue alone that is there.")]
Replace = Annotated[
    bool,
    FLAG,
    Parameter(
        help="Replace the configuration of one that is there: what is not given gets its "
        "default, but for paused, which stays."
    ),
]


@app.command
def create(
    name: Name,
    /,
    *settings: Settings,
    ensure: Ensure = False,
    replace: Replace = False,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Make a queue; what is not given gets its default.

    A queue that is there is never changed by this: it is shown when all that is given is the same,
    and is a conflict that says what differs otherwise. See `pushlane queue update`.

    pushlane queue create orders max_attempts=3
    """
    if ensure and replace:
        fail("--ensure and --replace can't be combined: leave the queue alone, or replace it?")
    config = read_settings(settings)

    def call(queues: Queues) -> Awaitable[dict[str, Any]]:
        make = queues.ensure if ensure else queues.replace if replace else queues.create
        return _configured(make(name, **config))

    _show(server, json, call)


@app.command
def show(name: Name, /, *, json: Json = False, server: Server = HERE) -> None:
    """Show a queue's configuration."""
    _show(server, json, lambda queues: queues.get(name))


@app.command(name="list")
def list_queues(*, json: Json = False, server: Server = HERE) -> None:
    """List all queues, and how each is doing.

    DEPTH is how many messages are stored and have not ended, IN_FLIGHT how many of them consumers
    have, OLDEST how long the oldest one has waited. A - is what the server can't tell right now.
    """
    from pushlane.commands.run import run

    rows = run(server, _all_queues)
    if json:
        print_json(rows)
    elif rows:
        print_table(COLUMNS, [_standing(row, time.time() * 1000) for row in rows])
    else:
        note("there are no queues; the first publish creates one")


@app.command
def update(name: Name, /, *settings: Settings, json: Json = False, server: Server = HERE) -> None:
    """Change some of a queue's configuration; the rest stays.

    pushlane queue update orders lease_ms=60000
    """
    changes = read_settings(settings)
    if not changes:
        fail("what should change? Give KEY=VALUE, such as lease_ms=60000")
    _show(server, json, lambda queues: _configured(queues.update(name, **changes)))


@app.command
def delete(
    name: Name,
    /,
    *,
    yes: Yes = False,
    confirmed: Confirm = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Delete a queue with all its messages. It asks for the name once more."""
    from pushlane.commands.run import run

    confirm(name, f"queue {name} with all its messages", yes, confirmed)
    run(server, lambda client: client.queues.delete(name))
    if json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"deleted {name}")


@app.command
def purge(
    name: Name,
    /,
    *,
    yes: Yes = False,
    confirmed: Confirm = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Drop all messages of a queue that nobody holds. It asks for the name once more."""
    from pushlane.commands.run import run

    confirm(name, f"all messages of {name}", yes, confirmed)
    answer = run(server, lambda client: client.queues.purge(name))
    if json:
        print_json(answer)
    else:
        print(purged(f"messages of {name}", answer))


@app.command
def pause(name: Name, /, *, json: Json = False, server: Server = HERE) -> None:
    """Deliver nothing of a queue until it is resumed; publishing goes on."""
    _do(server, json, f"paused {name}", lambda queues: queues.pause(name))


@app.command
def resume(name: Name, /, *, json: Json = False, server: Server = HERE) -> None:
    """Deliver again after a pause."""
    _do(server, json, f"resumed {name}", lambda queues: queues.resume(name))


@app.command
def peek(name: Name, /, *, max: Limit = 10, json: Json = False, server: Server = HERE) -> None:
    """Look at the next messages without taking them."""
    from pushlane.commands.run import run

    async def command(client: Client) -> list[dict[str, Any]]:
        return await peek_messages(client, name, max)

    show_messages(run(server, command), json, f"{name} has no message to show")


@app.command
def explain(name: Name, id: Id, /, *, json: Json = False, server: Server = HERE) -> None:
    """Tell where a message is, since when, and why. Exits with 5 when nothing is known of it."""
    from pushlane.commands.run import run

    answer = run(server, lambda client: client.queues.explain(name, id))
    (print_json if json else print_object)(answer)
    if answer.get("state") == "unknown":
        fail(f"{name} knows nothing of {id}: check the id, or it ended long ago", NOT_FOUND)


@app.command
def stats(name: Name, /, *, json: Json = False, server: Server = HERE) -> None:
    """Show how many messages are ready, leased, delayed, … and how many have ended.

    What has ended is counted since the server opened the queue.
    """
    _show(server, json, lambda queues: queues.stats(name))


async def _configured(call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The queue; who mistyped a key is told where they stand."""
    from pushlane.wire.errors import BadRequest

    try:
        return await call
    except BadRequest as error:
        if "unknown field" not in str(error):
            raise
        raise BadRequest(f"{error}; `pushlane queue show NAME` lists the keys") from error


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """From KEY=VALUE. A value is JSON (30000, true, null), or else a string."""
    import msgspec

    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            fail(f"{text!a} is not KEY=VALUE, such as lease_ms=60000")
        try:
            settings[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            settings[key] = value
    return settings


async def peek_messages(client: Client, name: str, most: int) -> list[dict[str, Any]]:
    """The next messages, page by page."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        limit = min(PAGE, most - len(found))
        page = await client.queues.peek(name, limit=limit, after=after)
        found += page.get("messages", [])
        after = page.get("next")
        if not after or len(found) >= most:
            return found


def show_messages(messages: list[dict[str, Any]], json: bool, empty: str) -> None:
    """Messages in a table, or as JSON."""
    if json:
        print_json(messages)
    elif messages:
        columns = ["id", "published_at", "attempt", "key", "body"]
        if any("dead" in message for message in messages):
            columns = ["id", "was_id", "attempts", "cause", "error", "dead_at", "body"]
        print_table(columns, [_with_death(message) for message in messages])
    else:
        note(empty)


def _with_death(message: dict[str, Any]) -> dict[str, Any]:
    """With what it was in the queue that it died in."""
    dead = message.get("dead", {})
    return {**dead, **message, "was_id": dead.get("id")}


def purged(what: str, answer: dict[str, Any]) -> str:
    """How many are gone, where the server says it."""
    count = answer.get("purged")
    return f"purged all {what}" if count is None else f"purged {count} {what}"


def _standing(row: dict[str, Any], now: float) -> dict[str, Any]:
    """A queue's line of the list."""
    stats = row.get("stats") or {}
    oldest_at = stats.get("oldest_at")
    return {
        "name": row.get("name"),
        "depth": stats.get("depth"),
        "in_flight": stats.get("in_flight"),
        "oldest": None if oldest_at is None else age(now - oldest_at),
        "consumers": stats.get("consumers"),
        "paused": "paused" if row.get("config", row).get("paused") else None,
    }


async def _all_queues(client: Client) -> list[dict[str, Any]]:
    from pushlane.wire.errors import BadRequest

    try:
        return await _pages(client, stats=True)
    except BadRequest:  # a server of an earlier version
        return await _pages(client, stats=False)


async def _pages(client: Client, *, stats: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = await client.queues.list(limit=PAGE, after=after, stats=stats)
        rows += page.get("queues", [])
        after = page.get("next")
        if not after:
            return rows


def _show(server: Server, json: bool, call: Callable[[Queues], Awaitable[dict[str, Any]]]) -> None:
    from pushlane.commands.run import run

    answer = run(server, lambda client: call(client.queues))
    if json:
        print_json(answer)
    else:
        print_object({name: answer[name] for name in answer if not _is_for_later(answer, name)})


def _is_for_later(answer: dict[str, Any], name: str) -> bool:
    return name in LATER and answer[name] == LATER[name]


def _do(
    server: Server, json: bool, done: str, call: Callable[[Queues], Awaitable[dict[str, Any]]]
) -> None:
    from pushlane.commands.run import run

    answer = run(server, lambda client: call(client.queues))
    if json:
        print_json(answer)
    else:
        print(done)
