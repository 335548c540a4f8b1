"""`pushlane serve` as a process: ready, crash, drain, and what it says when it can't start."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from websockets.exceptions import ConnectionClosed

from pushlane_gateway.serve_command import serve
from pushlane_storage.sqlite.store import SqliteStore
from tests.gateway.client import WireClient
from tests.gateway.process import run, serving
from tools.services.ports import free_port


def test_publish_kill_restart_consume(tmp_path: Path) -> None:
    with serving(tmp_path) as server, WireClient(server.url) as client:
        ids = client.publish("orders", {"order": 17}, {"order": 18})
        sub = client.subscribe("orders", credit=1)
        (first,) = client.receive()
        assert "lease_lost" not in client.ack(sub, first["receipt"])
        server.kill()
    with serving(tmp_path) as server, WireClient(server.url) as client:
        sub = client.subscribe("orders")
        (found,) = client.receive()
        assert (found["id"], found["body"]) == (ids[1], {"order": 18})
        assert client.ack(sub, found["receipt"]) == {"op": "done", "id": 3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_it_exits_with_0(tmp_path: Path, number: int) -> None:
    with serving(tmp_path, "--set", "log.format=json") as server:
        idle, busy = WireClient(server.url), WireClient(server.url)
        sub = busy.subscribe("q")
        busy.publish("q", 1)
        (found,) = busy.receive()
        server.popen.send_signal(number)
        assert idle.hear("goaway")["reason"] == "drain"
        with pytest.raises(ConnectionClosed) as closed:
            idle.ws.recv(timeout=60)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "drain")
        goaway = busy.hear("goaway")
        assert 500 <= goaway["reconnect_ms"] <= 1_000
        busy.say(op="publish", id=9, to="q", messages=[{"body": 2}])
        assert busy.hear("error")["code"] == "unavailable"
        assert busy.ack(sub, found["receipt"]) == {"op": "done", "id": 3}
        with pytest.raises(ConnectionClosed):
            busy.ws.recv(timeout=60)
        assert server.popen.wait(30) == 0
        assert server.popen.stdout is not None
        assert server.popen.stdout.read() == ""
        lines = [json.loads(line) for line in server.errors.read_text().splitlines()]
        assert [line["event"].split()[0] for line in lines] == ["ready", "draining:"]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server, WireClient(server.url) as client:
        client.subscribe("q")
        client.publish("q", 1)
        client.receive()
        server.popen.send_signal(signal.SIGTERM)
        client.hear("goaway")
        since = time.monotonic()
        assert server.terminate() == 1
        assert time.monotonic() - since < 10


def test_what_a_drain_gave_back_counts_its_attempt(tmp_path: Path) -> None:
    with serving(tmp_path) as server, WireClient(server.url) as client:
        client.subscribe("q")
        client.publish("q", 1)
        client.receive()

        def follow() -> None:
            client.hear("goaway")
            client.close()

        done = threading.Thread(target=follow)
        done.start()
        assert server.terminate() == 0
        done.join()
    with serving(tmp_path) as server, WireClient(server.url) as client:
        client.subscribe("q")
        assert client.receive()[0]["attempt"] == 2


def test_a_folder_in_use(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        second = run(tmp_path, "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
        assert second.returncode == 2
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert f"is in use by process {server.popen.pid}" in line


def test_a_cassandra_that_is_not_there_may_come_later(tmp_path: Path) -> None:
    done = run(tmp_path, "--store", f"cassandra://u:secret@127.0.0.1:{free_port()}/k")
    assert (done.returncode, done.stdout) == (os.EX_TEMPFAIL, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith("pushlane serve: Cassandra can't be reached at 127.0.0.1:")
    assert "secret" not in done.stderr


def test_insecure_says_so_aloud(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "0.0.0.0:0", "--insecure") as server:
        assert "http://0.0.0.0:" in server.url
        assert server.terminate() == 0


# Without a process: it ends before it serves


@pytest.fixture
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder and an environment that configure nothing, and the logs as they were."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("PUSHLANE_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def fails(capsys: pytest.CaptureFixture[str], **flags: Any) -> str:
    """What it says on stderr, in one line, before it exits with 2."""
    with pytest.raises(SystemExit) as end:
        serve(**flags)
    captured = capsys.readouterr()
    assert (end.value.code, captured.out) == (2, "")
    assert captured.err.startswith("pushlane serve: ")
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.usefixtures("_clean")
def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = fails(capsys, listen=[address], store="memory:")
    assert line == f"pushlane serve: can't listen on {address}: Address already in use"


@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"store": "mongo:x"}, "unknown scheme 'mongo'"),
        ({"leases": "nonsense:"}, "bad lease URL"),
        ({"store": "memory:", "data": "x"}, "--data and --store are both set"),
        ({"listen": ["nonsense"]}, "an address is HOST:PORT"),
        ({"store": "memory:", "listen": ["0.0.0.0:0"]}, "can be reached from other machines"),
        ({"settings": ["limits.bach=5"]}, "did you mean limits.batch"),
        ({"settings": ["limits.batch=0"]}, "limits.batch"),
        ({"config": "missing.toml"}, "missing.toml"),
        ({"tls_certificate": "no.pem", "tls_key": "no.pem"}, "TLS: no.pem and no.pem: "),
        ({"tls_certificate": "no.pem"}, "TLS needs both certificate and key"),
    ],
)
def test_bad_configuration(
    flags: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in fails(capsys, **flags)


@pytest.mark.usefixtures("_clean")
def test_a_folder_of_a_newer_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def make() -> None:
        await (await SqliteStore.open(tmp_path / "data")).close()

    trio.run(make)
    with sqlite3.connect(tmp_path / "data" / "pushlane.db") as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    line = fails(capsys, data="data", listen=["127.0.0.1:0"])
    assert "was written by a newer version of Pushlane" in line


@pytest.mark.usefixtures("_clean")
def test_print_config(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        serve(print_config=True, settings=["limits.batch=7"])
    assert end.value.code == 0
    assert "batch = 7  # --set limits.batch" in capsys.readouterr().out
