"""`pushlane doctor`: is everything as it should be, and if not, what next?

Client-side checks are here. Where the server is installed too, it adds its own through the entry
points `pushlane.checks`: functions of the path of a configuration file and a data folder, either
of which may be None, that yield tuples (name, status, what was found).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pushlane.commands.exits import FAILED
from pushlane.commands.output import FLAG, Json, print_json
from pushlane.commands.server import CONNECT_MS, HERE, Server

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from pushlane.core.url import Endpoint
    from pushlane.wire.frames import Welcome

CHECKS = "pushlane.checks"
PINGS = 5
CLOCK_WARN_MS = 2_000
"""Clocks further apart than this make tokens and delays come out wrong."""
LATENCY_WARN_MS = 250
"""A round trip that makes every publish and ack slow."""

GRAVE = ("unreachable", "not_placed", "same_name", "same_address", "store")
"""Problems of a cluster that leave a node without work, or soon will."""

Status = Literal["ok", "warning", "failed"]
_SIGNS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


class Check(NamedTuple):
    """What one look found."""

    name: str
    status: Status
    found: str


def doctor(
    *,
    config: str | None = None,
    data: str | None = None,
    client_only: Annotated[bool, FLAG] = False,
    json: Json = False,
    server: Server = HERE,
) -> None:
    """Check the connection to the server and, where it is installed, the server's own machine.

    Prints one line per check; a failed check says what to do. Exits with 1 if something failed,
    otherwise with 0, even if there are warnings.

    Parameters
    ----------
    config
        The server's configuration file.
    data
        The server's data folder.
    client_only
        Leave the server's machine out.
    """
    found: list[Check] = []
    for check in _all_checks(server, config, data, client_only):
        found.append(check)
        if not json:
            print(f"{_SIGNS[check.status]}  {check.name}: {check.found}", flush=True)
    if json:
        print_json([check._asdict() for check in found])
    if any(check.status == "failed" for check in found):
        sys.exit(FAILED)


def _all_checks(
    server: Server, config: str | None, data: str | None, client_only: bool
) -> Iterator[Check]:
    yield from check_client(server)
    if not client_only:
        for entry in metadata.entry_points(group=CHECKS):
            yield from read_checks(entry.load()(config, data))


def read_checks(rows: Iterable[tuple[str, Any, str]]) -> Iterator[Check]:
    for name, status, found in rows:
        assert status in _SIGNS, status
        yield Check(name, status, found)


def check_client(server: Server) -> Iterator[Check]:
    """Connect, say hello, and look at the clock and the time it takes."""
    import os

    from pushlane.core.url import DEFAULT_URL, VARIABLE, parse_url
    from pushlane.wire.errors import PushlaneError

    try:
        endpoint = parse_url(server.url or os.environ.get(VARIABLE) or DEFAULT_URL)
        token = server.token()
    except PushlaneError as error:
        yield Check("address", "failed", str(error))
        return
    yield from _look(endpoint, token)
    yield from check_cluster(server)


def check_cluster(server: Server) -> Iterator[Check]:
    """What the server says of the other nodes; nothing where there are none, or it may not say."""
    from pushlane.commands.cluster import ask_status
    from pushlane.wire.errors import Forbidden, PushlaneError

    try:
        status = ask_status(server)
    except Forbidden:
        yield Check("cluster", "ok", "not looked at: that takes a key with operate:*")
        return
    except PushlaneError:  # what is wrong was said before, or it is an older server
        return
    if status.get("shared"):
        yield from judge_cluster(status)


def judge_cluster(status: Mapping[str, Any]) -> Iterator[Check]:
    problems = status.get("problems", ())
    for problem in problems:
        found = "failed" if problem["code"] in GRAVE else "warning"
        yield Check("cluster", found, problem["text"])  # type: ignore[arg-type]
    if not problems:
        count = len(status["nodes"])
        nodes = "1 node" if count == 1 else f"{count} nodes, all of them up"
        yield Check("cluster", "ok", f"{status['cluster']}: {nodes}")


def _look(endpoint: Endpoint, token: str | None) -> Iterator[Check]:
    from websockets.exceptions import InvalidHandshake, WebSocketException
    from websockets.sync.client import connect

    from pushlane.wire.codec import JSON

    url = endpoint.ws_url
    started = time.monotonic()
    try:
        socket = connect(
            url,
            subprotocols=[JSON.subprotocol],  # type: ignore[list-item]
            compression=None,
            proxy=None,
            open_timeout=CONNECT_MS / 1000,
            close_timeout=1,
        )
    except (OSError, TimeoutError) as error:
        yield Check("connection", "failed", f"{url}: {error}; is the server running there?")
        return
    except InvalidHandshake as error:
        yield Check("connection", "failed", f"{url}: {error}; no Pushlane, or a proxy in between")
        return
    took = (time.monotonic() - started) * 1000
    yield Check("connection", "ok", f"{url}, open after {took:.0f} ms")
    with socket:
        try:
            yield from _greet(socket, token)
        except (WebSocketException, TimeoutError) as error:
            yield Check("session", "failed", f"the connection broke: {error}")


def _greet(socket: ClientConnection, token: str | None) -> Iterator[Check]:
    from pushlane.wire.codec import JSON
    from pushlane.wire.frames import ErrorFrame, Hello, Welcome

    sent_at = time.time() * 1000
    socket.send(JSON.encode(Hello(token=token, client="pushlane doctor")).decode())
    answer = JSON.decode_server(_bytes(socket.recv(CONNECT_MS / 1000)))
    got_at = time.time() * 1000
    if isinstance(answer, ErrorFrame):
        advice = "set PUSHLANE_TOKEN" if token is None else "get a valid token"
        yield Check("token", "failed", f"{answer.message} ({advice})")
        return
    if not isinstance(answer, Welcome):
        yield Check("session", "failed", "the server didn't answer hello with welcome")
        return
    who = "without a token" if token is None else "the token is valid"
    yield Check("token", "ok", who)
    yield check_version(answer.server)
    yield check_clock(answer, sent_at, got_at)
    yield check_latency([_ping(socket) for _ in range(PINGS)])


def check_version(server: str) -> Check:
    mine = metadata.version("pushlane")
    same = server.split()[-1:] == [mine]
    note = "" if same else f"; this command is {mine}, take the same version where you can"
    return Check("version", "ok" if same else "warning", server + note)


def check_clock(welcome: Welcome, sent_at: float, got_at: float) -> Check:
    """The server's clock stood at `now` somewhere between the two."""
    offset = welcome.now - (sent_at + got_at) / 2
    if abs(offset) > CLOCK_WARN_MS:
        found = f"the server's is {offset:+.0f} ms from this one: synchronize them (NTP)"
        return Check("clock", "warning", found)
    return Check("clock", "ok", f"{offset:+.0f} ms from the server's")


def check_latency(pings: list[float]) -> Check:
    middle, worst = median(pings), max(pings)
    slow = middle > LATENCY_WARN_MS
    found = f"{middle:.1f} ms a round trip, at worst {worst:.1f}"
    if slow:
        found += ": batch publishes, and give consumers more credit"
    return Check("latency", "warning" if slow else "ok", found)


def _ping(socket: ClientConnection) -> float:
    started = time.monotonic()
    if not socket.ping().wait(CONNECT_MS / 1000):
        raise TimeoutError("no answer to a ping")
    return (time.monotonic() - started) * 1000


def _bytes(frame: str | bytes) -> bytes:
    return frame.encode() if isinstance(frame, str) else frame
