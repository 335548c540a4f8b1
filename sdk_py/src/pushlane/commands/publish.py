"""`pushlane publish`.

An option that it doesn't know is an error, not a message; behind `--` all are messages. The command
line library takes `-` for an option, too, so where it stands for stdin it is passed on as a sign
that no argument of a program can be.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from pushlane.commands.exits import FAILED, explain_error, fail
from pushlane.commands.output import FLAG, Advance, Json, note, print_json, progress
from pushlane.commands.server import HERE, Server

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client
    from pushlane.core.publication import Item, Published

STDIN = "-"
_STDIN_SIGN = "\0"
_END = "--"
MAX_TOLD = 10
"""Failures that are told one by one; the rest is counted."""


_app = App(name="pushlane publish", version_flags=[])
publish = _app.meta
publish.help = "Publish messages, and print their ids once they are stored."
publish.help_flags = publish.version_flags = []


@publish.default
def read_arguments(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
) -> None:
    """What stands on the command line, as it is."""
    end = tokens.index(_END) if _END in tokens else len(tokens)
    options = [_STDIN_SIGN if token == STDIN else token for token in tokens[:end]]
    _app([*options, *tokens[end:]], result_action="return_value")


@_app.default
def publish_messages(
    queue: str,
    /,
    *bodies: Annotated[str, Parameter(name="BODY")],
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
        The queue's name. It is created if it doesn't exist.
    bodies
        A message: sent as JSON if it is JSON, otherwise as a string. - reads one message per line
        from stdin. Put -- before messages that begin with a hyphen.
    text
        Every BODY is a string, even if it looks like JSON.
    key
        Messages with the same key are delivered in order, one at a time.
    dedup
        Your own id: a message that is published again with it is stored once.
    priority
        0 to 9, higher first; 4 unless given.
    delay_ms
        Deliver it this many milliseconds later.
    ttl_ms
        Send it to the dead letters if nobody takes it within this many milliseconds.
    header
        NAME=VALUE; may be given several times.
    """
    from pushlane.commands.run import run

    if not bodies:
        fail("nothing to publish: give a BODY, or - to read one message per line from stdin")
    if _STDIN_SIGN in (queue, key, dedup):
        fail("- stands for stdin, in place of a BODY only")
    if dedup is not None and (len(bodies) > 1 or _STDIN_SIGN in bodies):
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
        total = None if _STDIN_SIGN in bodies else len(bodies)
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
                print(result.id or "duplicate")
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
    from pushlane.commands.bodies import read_batches

    waiting: list[Item] = []
    for body in bodies:
        if body != _STDIN_SIGN:
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
    from pushlane.commands.bodies import read_body
    from pushlane.core.publication import Item
    from pushlane.wire.errors import BadRequest

    items = []
    for body in texts:
        try:
            items.append(Item(body=read_body(body, is_text=text), **options))
        except BadRequest as error:
            tally.refuse(error)
    return items
