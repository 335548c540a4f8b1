"""`pushlane cluster`: the nodes that share a store."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App

from pushlane.commands.exits import INTERRUPTED, exit_code, explain_error, fail
from pushlane.commands.output import FLAG, Json, age, note, print_json, print_table
from pushlane.commands.server import CONNECT_MS, HERE, Server

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = (
    "name", "role", "state", "for", "slots", "placed", "sessions", "publishes", "delivers",
    "oldest", "lag", "latency", "breaker", "version", "url", "address",
)  # fmt: skip
WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"
"""The cursor to the top left, and nothing on the screen."""

app = App(name="cluster", help="Look at the nodes that share a store, and drain them.")


@app.command
def status(
    *,
    watch: Annotated[bool, FLAG] = False,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Show the nodes of the cluster, as the server that is asked sees them.

    ROLE is gateway (it serves clients only), dispatcher (it owns queues only) or both. STATE is up,
    unreachable, draining or not_placed (no other node has reached it yet, so it takes no queues),
    FOR how long it has been that. SLOTS is how many of 256 slots it has now, PLACED how many it is
    to have when somebody uses their queues. SESSIONS, PUBLISHES and DELIVERS (messages a second)
    are what each node says of its own clients. OLDEST is the age of the message that waits longest
    in its queues, LAG how long its oldest write has waited for the store, LATENCY how long its last
    answer took. BREAKER is closed while requests go to it, open while its links are broken or can't
    be had, and half_open during an attempt. A - is what nobody could tell: a node that is dead is
    not waited for.

    What is wrong is listed below, after an exclamation mark. Needs the right operate:*.

    Parameters
    ----------
    watch
        Show it again every two seconds, until Ctrl-C.
    """
    from pushlane.wire.errors import PushlaneError

    try:
        _show(ask_status(server), json)
        while watch:
            time.sleep(WATCH_SECONDS)
            _show_again(server, json)
    except PushlaneError as error:
        fail(explain_error(error), exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@app.command
def drain(
    node: str,
    /,
    *,
    undo: Annotated[bool, FLAG] = False,
    server: Server = HERE,
) -> None:
    """Have a node give its slots to the other nodes, for instance before maintenance.

    Its queues go on at the others, with all leases; its clients stay connected. It takes no slots
    until --undo, or until it is started again. Refused when no other node could take them. Watch it
    with `pushlane cluster status --watch`. Needs the right operate:*.

    Parameters
    ----------
    node
        The node's name, as `pushlane cluster status` shows it.
    undo
        Let it take slots again.
    """
    from pushlane.wire.errors import PushlaneError

    try:
        _call(server, "POST", "/v1/cluster/drain", {"node": node, "undo": undo})
    except PushlaneError as error:
        fail(explain_error(error), exit_code(error))
    note(f"{node} takes slots again" if undo else f"{node} gives its slots to the other nodes")


def _show_again(server: Server, json: bool) -> None:
    """A server that can't be reached now may be again."""
    from pushlane.wire.errors import ConnectionLost

    try:
        found = ask_status(server)
    except ConnectionLost as error:
        note(str(error))
        return
    if not json and sys.stdout.isatty():
        print(CLEAR, end="")
    _show(found, json)


def ask_status(server: Server) -> dict[str, Any]:
    """What `GET /v1/cluster` answers."""
    return _call(server, "GET", "/v1/cluster")


def _call(server: Server, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """No session is needed for it."""
    import asyncio
    import os
    import ssl

    from pushlane.asyncio.http import request
    from pushlane.core.queues import Call
    from pushlane.core.settings import Settings
    from pushlane.core.url import DEFAULT_URL, VARIABLE, parse_url

    endpoint = parse_url(server.url or os.environ.get(VARIABLE) or DEFAULT_URL)
    tls = ssl.create_default_context() if endpoint.is_tls else None
    settings = Settings(connect_ms=CONNECT_MS, http_ms=CONNECT_MS)
    call = Call(method, path, body=body)
    found: dict[str, Any] = asyncio.run(request(endpoint, call, server.token(), settings, tls))
    return found


def _show(status: Mapping[str, Any], json: bool) -> None:
    if json:
        print_json(status)
        return
    if not status["shared"]:
        note("there is no cluster: this server's store is its own")
        return
    print_table(COLUMNS, [_row(node) for node in status["nodes"]])
    orphans = status.get("orphans")
    if orphans:
        print(f"{orphans} slots of nodes that are gone: somebody takes them with their next use")
    for gone in status.get("gone", ()):
        print(f"{gone['name']} went {age(gone['ago_ms'])} ago: {gone['why']}")
    for problem in status.get("problems", ()):
        print(f"! {problem['text']}")


def _row(node: Mapping[str, Any]) -> dict[str, Any]:
    oldest, latency = node.get("oldest_ms"), node.get("latency_ms")
    return {
        **node,
        "name": f"{node['name']} *" if node.get("this") else node["name"],
        "role": roles[0] if len(roles := node["roles"]) == 1 else "both",
        "for": age(node["state_ms"]),
        "publishes": _rate(node.get("published")),
        "delivers": _rate(node.get("delivered")),
        "oldest": None if oldest is None else age(oldest),
        "lag": _ms(node.get("lag_ms")),
        "latency": None if latency is None else f"{latency:.1f} ms",
    }


def _ms(value: int | None) -> str | None:
    return None if value is None else f"{value} ms"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}/s"
