"""Dropping: under the folder's lock, through a server, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from pushlane_spark.errors import ServerRefused, StoreUnreadable
from pushlane_spark.retaining import dropping as owner_module
from pushlane_spark.retaining.dropping import LOCKED, Dropper, Owner
from pushlane_spark.retaining.plan import Found, Queue
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.dropping import IN_WINDOW, NOT_DRAINED
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.folder import open_folder
from tests.spark.retaining.made import ACKED, LATER, MARKED, OPEN, Made, make_store
from tools.services.ports import free_port

CONFIG = QueueConfig(archive="parquet", dedup_window_ms=24 * 3_600_000)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_store(tmp_path / "store")


def wanted(made: Made) -> tuple[Queue, list[Found]]:
    shard = ShardKey(made.queue_id, 0)
    found = [Found(shard, Bucket(key, 0, True, True)) for key in (ACKED, MARKED, OPEN)]
    return Queue("t", "orders", made.queue_id, CONFIG), found


def test_rows_are_judged_again(made: Made) -> None:
    """Whatever the plan said."""
    queue, found = wanted(made)
    drops = Dropper(made.url, None).drop(queue, found, LATER)
    assert (drops.dropped, drops.kept) == (found[:1], {IN_WINDOW: 1, NOT_DRAINED: 1})
    again = Dropper(made.url, None).drop(queue, found[:1], LATER)
    assert again.dropped == found[:1]


def test_a_folder_that_a_server_has(made: Made) -> None:
    queue, found = wanted(made)
    folder = open_folder(Path(made.url.partition(":")[2]))
    try:
        drops = Dropper(made.url, None).drop(queue, found, LATER)
        assert (drops.dropped, drops.kept) == ([], {LOCKED: 3})
        assert not Dropper(made.url, None).remove([made.queue_id])
    finally:
        folder.close()


def test_a_store_that_can_not_be_opened(tmp_path: Path, made: Made) -> None:
    (tmp_path / "file").write_text("")
    dropper = Dropper(f"sqlite:{tmp_path}/file", None)
    with pytest.raises(StoreUnreadable, match="can't be changed"):
        dropper.drop(*wanted(made), LATER)
    with pytest.raises(StoreUnreadable, match="can't be changed"):
        dropper.remove(["x"])


# Servers


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str | None, Any]]] = []
    status, answer = 200, b""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        answer = (
            self.answer
            or json.dumps(
                {
                    "dropped": body["drop"][1:],
                    "kept": [{**one, "reason": "why"} for one in body["drop"][:1]],
                }
            ).encode()
        )
        self.send_response(self.status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Handler, "asked", [])
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_server_is_asked_in_parts(
    made: Made, listening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "MOST", 2)
    queue, found = wanted(made)
    queue = queue._replace(name="a b/c")
    for url in (listening, f"http://{listening}/", f"ws://{listening}/v1/ws"):
        assert Owner(url, "secret").drop(queue, found) == ([found[1]], {"why": 2})
    path, token, body = Handler.asked[0]
    assert (path, token) == ("/v1/queues/a%20b%2Fc/retention", "Bearer secret")
    assert (body["queue_id"], len(body["drop"])) == (made.queue_id, 2)
    assert body["drop"][0] == {"shard": 0, **ACKED._asdict()}
    Owner(listening).wake(queue)
    assert Handler.asked[-1][1:] == (None, {"queue_id": made.queue_id, "drop": []})


def test_what_a_server_says(made: Made, listening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, _ = wanted(made)
    monkeypatch.setattr(Handler, "status", 409)
    for answer, told in (
        (b'{"error": {"code": "conflict", "message": "made anew"}}', "orders/retention: made anew"),
        (b"no json", "the server answered 409"),
    ):
        monkeypatch.setattr(Handler, "answer", answer)
        with pytest.raises(ServerRefused, match=told):
            Owner(listening).wake(queue)
    with pytest.raises(ServerRefused, match="does not answer"):
        Owner(f"127.0.0.1:{free_port()}").wake(queue)
    for url in ("ftp://host", "http://"):
        with pytest.raises(ServerRefused, match="is not a server URL"):
            Owner(url)
