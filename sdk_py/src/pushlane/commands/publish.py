"""`pushlane publish`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pushlane.commands.exits import FAILED, explain_error, fail
from pushlane.commands.output import FLAG, Advance, Json, note, print_json, progress
from pushlane.commands.server import HERE, Server

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client
    from pushlane.core.publication import Item, Published

STDIN = "-"
MAX_TOLD = 10
"""Failures that are told one by one; the rest is counted."""


def publish(
    queue: str,
    /,
    *bodies: Annotated[str, Parameter(name="BODY", allow_leading_hyphen=True)],
    text: Annotated[bool, FLAG] = False,
    key: str | None = None,
    dedup: str | None = None,
    priority: int | None = None,
    delay_ms: int | None = None,
    ttl_ms: int | None = None,
    header: Annotated[list[str] | None, Parameter(negative="")] = None,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Publish messages, and print their ids once they are stored.

    pushlane publish orders '{"id": 1}' stores one message, pushlane publish orders a b c three.

    Parameters
    ----------
    queue
        The queue's name. One that is not there yet is made.
    bodies
        A message: JSON where it is JSON, else a string. - reads a message a line from stdin.
    text
        Every BODY is a string, also one that looks like JSON.
    key
        Messages with the same key are delivered in order, one at a time.
    dedup
        An id of yours: published again with it, the message is stored once.
    priority
        0 to 9, higher first; 4 unless given.
    delay_ms
        Deliver it this many milliseconds later.
    ttl_ms
        To the dead letters when nobody took it for this many milliseconds.
    header
        NAME=VALUE; may be given several times.
    """
    from pushlane.commands.run import run

    if not bodies:
        fail("what should be published? Give a BODY, or - for a message a line from stdin")
    if dedup is not None and (len(bodies) > 1 or STDIN in bodies):
        fail("--dedup is the id of one message: give one BODY")
    options = {
        "key": key,
        "dedup": dedup,
        "priority": priority,
        "delay_ms": delay_ms,
        "ttl_ms": ttl_ms,
        "headers": read_headers(header or []),
    }

    async def command(client: Client) -> Tally:
        tally = Tally(json)
        total = None if STDIN in bodies else len(bodies)
        with progress("publishing", total) as advance:
            async for batch in _batches(bodies, text, options, tally):
                tally.add(await client.publish_many(queue, batch), advance)
        return tally

    tally = run(server, command)
    if tally.failed:
        total = tally.failed + tally.stored
        if total > 1:
            note(f"{tally.failed} of {total} failed")
        sys.exit(tally.code)


class Tally:
    """What became of all the messages."""

    def __init__(self, json: bool) -> None:
        self.stored = 0
        self.failed = 0
        self.code = FAILED
        self._json = json

    def add(self, results: Iterable[Published], advance: Advance) -> None:
        for result in results:
            if result.error is not None:
                self.refuse(result.error)
                continue
            self.stored += 1
            if self._json:
                print_json({"id": result.id, "duplicate": result.duplicate})
            else:
                print(result.id)
            advance(1)
        sys.stdout.flush()

    def refuse(self, error: Any) -> None:
        """Count one that failed, and tell the first few."""
        from pushlane.commands.exits import exit_code

        if not self.failed or self.code == exit_code(error):
            self.code = exit_code(error)
        else:
            self.code = FAILED
        self.failed += 1
        if self._json:
            print_json({"error": {"code": error.code, "message": str(error)}})
        if self.failed <= MAX_TOLD:
            note(explain_error(error))


def read_headers(texts: Sequence[str]) -> dict[str, str] | None:
    """From NAME=VALUE."""
    headers = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"--header {text!a} is not NAME=VALUE")
        headers[name] = value
    return headers or None


async def _batches(
    bodies: Sequence[str], text: bool, options: dict[str, Any], tally: Tally
) -> AsyncIterator[list[Item]]:
    """Everything given, in order; stdin where its sign stands."""
    from pushlane.commands.lines import read_batches

    waiting: list[Item] = []
    for body in bodies:
        if body != STDIN:
            waiting += _items([body], text, options, tally)
            continue
        if waiting:
            yield waiting
            waiting = []
        async for lines in read_batches():
            decoded = [line.decode("utf-8", "surrogateescape") for line in lines]
            items = _items(decoded, text, options, tally)
            if items:
                yield items
    if waiting:
        yield waiting


def _items(texts: Iterable[str], text: bool, options: dict[str, Any], tally: Tally) -> list[Item]:
    from pushlane.commands.body import read_body
    from pushlane.core.publication import Item
    from pushlane.wire.errors import BadRequest

    items = []
    for body in texts:
        try:
            items.append(Item(body=read_body(body, is_text=text), **options))
        except BadRequest as error:
            tally.refuse(error)
    return items
