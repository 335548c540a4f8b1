"""`pushlane doctor`, the client's part: against real sockets that behave in all kinds of ways."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import HTTPServer, SimpleHTTPRequestHandler
from importlib import metadata
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from pushlane.commands import doctor
from pushlane.commands.doctor import (
    Check,
    check_clock,
    check_cluster,
    check_latency,
    check_version,
    judge_cluster,
    read_checks,
)
from pushlane.commands.server import HERE
from pushlane.wire.errors import ConnectionLost, Forbidden, NotFound
from pushlane.wire.frames import Welcome
from tests.sdk.commands.shell import Shell

MINE = f"pushlane {metadata.version('pushlane')}"


def welcome(**changed: Any) -> dict[str, Any]:
    frame = {
        "op": "welcome",
        "session": "s",
        "node": "n",
        "server": MINE,
        "resumed": False,
        "now": int(time.time() * 1000),
        "resume_ms": 30000,
        "heartbeat_ms": 25000,
        "limits": {},
    }
    return {**frame, **changed}


@contextmanager
def server(answer: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Answers hello with what it is told to."""

    def handle(socket: ServerConnection) -> None:
        hello = json.loads(socket.recv())
        reply = answer(hello)
        if reply is None:
            socket.close(1011)
            return
        socket.send(json.dumps(reply))
        for _ in socket:
            pass

    with serve(handle, "127.0.0.1", 0, subprotocols=["pushlane.v1.json"]) as running:  # type: ignore[list-item]
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.socket.getsockname()[1]}"
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_server_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = metadata.entry_points
    hide = lambda group: [] if group == doctor.CHECKS else entries(group=group)  # noqa: E731
    monkeypatch.setattr(metadata, "entry_points", hide)


def test_all_is_well(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_TOKEN", "secret-token")
    heard: list[dict[str, Any]] = []

    def answer(hello: dict[str, Any]) -> dict[str, Any]:
        heard.append(hello)
        return welcome()

    with server(answer) as url:
        found = shell.json("doctor", "--url", url)
        assert [check["name"] for check in found] == [
            *["connection", "token", "version", "clock", "latency"]
        ]
        assert {check["status"] for check in found} == {"ok"}
        text = shell("doctor", "--url", url)
    assert text.count("ok  ") == 5
    assert heard[0] == {"op": "hello", "token": "secret-token", "client": "pushlane doctor"}
    assert "secret-token" not in text


def test_a_refused_token(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"op": "error", "code": "unauthorized", "message": "no such key"}
    with server(lambda _: error) as url:
        assert "no such key (set PUSHLANE_TOKEN)" in shell("doctor", "--url", url, status=1)
        monkeypatch.setenv("PUSHLANE_TOKEN", "x")
        text = shell("doctor", "--url", url, status=1)
    assert "FAILED   token: no such key (get a valid token)" in text


def test_nobody_there(shell: Shell) -> None:
    with server(lambda _: None) as url:
        pass
    text = shell("doctor", "--url", url, status=1)
    assert "FAILED   connection" in text
    assert "is the server running there?" in text


def test_a_connection_that_breaks(shell: Shell) -> None:
    with server(lambda _: None) as url:
        assert "the connection broke" in shell("doctor", "--url", url, status=1)


def test_something_that_does_not_greet(shell: Shell) -> None:
    with server(lambda _: {"op": "beat", "now": 1}) as url:
        assert "didn't answer hello" in shell("doctor", "--url", url, status=1)


def test_something_that_speaks_http_only(shell: Shell) -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as web:
        thread = threading.Thread(target=web.handle_request)
        thread.start()
        text = shell("doctor", "--url", f"http://127.0.0.1:{web.server_port}", status=1)
        thread.join()
    assert "no Pushlane, or a proxy in between" in text


def test_a_bad_address(shell: Shell) -> None:
    assert "FAILED   address" in shell("doctor", "--url", "ftp://x", status=1)
    (check,) = shell.json("doctor", "--token-file", "/no/such/file", status=1)
    assert "can't be read" in check["found"]


def test_another_version_is_a_warning_only(shell: Shell) -> None:
    with server(lambda _: welcome(server="pushlane 99.0.0")) as url:
        assert "warning  version: pushlane 99.0.0" in shell("doctor", "--url", url)
    assert check_version(MINE).status == "ok"


@pytest.mark.parametrize(
    ("now", "status", "found"),
    [
        (1_050, "ok", "+0 ms"),
        (1_049 + 2_000, "ok", "+1999 ms"),
        (1_051 + 2_000, "warning", "NTP"),
        (1_049 - 2_000, "warning", "-2001 ms"),
    ],
)
def test_the_clock_is_compared_with_the_middle(now: int, status: str, found: str) -> None:
    frame = Welcome("s", "n", MINE, False, now, 1, 1, {})
    check = check_clock(frame, 1_000, 1_100)
    assert check.status == status
    assert found in check.found


def test_latency() -> None:
    assert check_latency([1, 2, 300]) == Check(
        "latency", "ok", "2.0 ms a round trip, at worst 300.0"
    )
    assert check_latency([251, 251, 1]).status == "warning"


def test_the_servers_own_checks_are_added(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []

    class Entry:
        @staticmethod
        def load() -> Any:
            def checks(config: str | None, data: str | None) -> list[tuple[str, str, str]]:
                asked.append((config, data))
                return [("disk", "failed", "full")]

            return checks

    found = metadata.entry_points
    monkeypatch.setattr(
        metadata,
        "entry_points",
        lambda group: [Entry] if group == doctor.CHECKS else found(group=group),
    )
    with server(lambda _: welcome()) as url:
        assert "FAILED   disk: full" in shell("doctor", "--url", url, "--data", "d", status=1)
        shell("doctor", "--url", url, "--client-only")
    assert asked == [(None, "d")]


def test_a_check_with_a_strange_status_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        list(read_checks([("a", "perhaps", "b")]))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("unreachable", "failed"),
        ("not_placed", "failed"),
        ("same_name", "failed"),
        ("store", "failed"),
        ("clock", "warning"),
        ("version", "warning"),
        ("refused", "warning"),
    ],
)
def test_what_is_wrong_in_a_cluster(code: str, status: Any) -> None:
    problem = {"code": code, "nodes": ["b"], "text": "b is wrong"}
    found = list(judge_cluster({"cluster": "c", "nodes": [{}, {}], "problems": [problem]}))
    assert found == [Check("cluster", status, "b is wrong")]


def test_a_cluster_that_is_well() -> None:
    [found] = judge_cluster({"cluster": "c", "nodes": [{}, {}, {}], "problems": []})
    assert found == Check("cluster", "ok", "c: 3 nodes, all of them up")


@pytest.mark.parametrize(
    ("answer", "checks"),
    [
        ({"shared": False}, 0),
        ({"shared": True, "cluster": "c", "nodes": [{}], "problems": []}, 1),
        (Forbidden("no"), 1),
        (NotFound("an older server"), 0),
        (ConnectionLost("gone"), 0),
    ],
)
def test_a_cluster_is_looked_at_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, answer: Any, checks: int
) -> None:
    def ask(_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("pushlane.commands.cluster.ask_status", ask)
    assert len(list(check_cluster(HERE))) == checks
