"""A meddler: makes a queue, configures it, uses it through any node, deletes it, and so on again.

Everything goes over plain HTTP and is tried until it is answered. A queue that was made must be
found by every node, and a queue that was deleted by none, with nothing left in the next one of
its name.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from itertools import count
from random import Random
from typing import Any

from pushlane_history import event as history
from tests.crash.load import WORK
from tests.crash.recorder import Recorder

QUEUE = "fleeting"
ASK_S = 40.0
PATIENCE_S = 90.0
PAUSE_S = 0.3
BATCH = 5
UNKNOWN = "unavailable"


class Meddler:
    """A thread of its own from `start` to `finish` or `stop`."""

    def __init__(self, number: int, rng: Random, urls: list[str]) -> None:
        self.recorder = Recorder(number)
        self._number = number
        self._rng = rng
        self._urls = urls
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._numbers = count(1)
        self._failure: BaseException | None = None
        self.lives = 0
        """Queues that were made, used and deleted."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def finish(self) -> None:
        """Wait for the end of the last life."""
        self.stop()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), "the meddler does not end"
        if self._failure is not None:
            raise self._failure
        assert self.lives, "no queue was deleted"

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._live(f"{QUEUE}#{self.lives + 1}")
                self.lives += 1
        except BaseException as failure:  # told to whoever waits for the end
            self._failure = failure

    def _live(self, label: str) -> None:
        config = {"lease_ms": 60_000, "shards": self._rng.randint(1, 4), "dead_letter": ""}
        self._add(history.QueueSet(self.recorder.at, label, dead_letter=""))
        self._surely("PUT", f"/v1/queues/{QUEUE}", config)
        for _ in range(self._rng.randint(1, 3)):
            self._publish(label)
            self._surely("PATCH", f"/v1/queues/{QUEUE}", {"backoff_base_ms": self._some()})
            self._surely("PATCH", f"/v1/queues/{WORK}", {"backoff_base_ms": self._some()})
            self._consume(label)
            self._over.wait(PAUSE_S)
        self._surely("DELETE", f"/v1/queues/{QUEUE}?confirm={QUEUE}", gone=True)
        self._add(history.Deleted(self.recorder.at, label))
        for url in self._urls:
            self._must_be_gone(url)

    def _some(self) -> int:
        return self._rng.randint(10, 40)

    def _publish(self, label: str) -> None:
        uids = [f"{label}.{next(self._numbers)}" for _ in range(self._rng.randint(1, BATCH))]
        for uid in uids:
            op = self.recorder.op()
            self._add(
                history.Publish(self.recorder.at, op, label, uid, producer=f"{self._number}m")
            )
            path, body = f"/v1/queues/{QUEUE}/messages", {"messages": [{"body": {"uid": uid}}]}
            status, answer = self._ask("POST", path, body)
            if status == 200:
                self._add(history.Published(self.recorder.at, op, answer["ids"][0]))
            else:
                self._add(history.PublishFailed(self.recorder.at, op, UNKNOWN))
            self._hold("not_found of a queue that is there", status == 404)

    def _consume(self, label: str) -> None:
        path = f"/v1/queues/{QUEUE}"
        status, answer = self._ask("POST", f"{path}/receive", {"max": BATCH, "wait_ms": 300})
        self._hold("not_found of a queue that is there", status == 404)
        for each in answer["messages"] if status == 200 else ():
            receipt = each["receipt"]
            self._add(
                history.Grant(
                    self.recorder.at, label, each["id"], each["body"]["uid"], receipt=receipt,
                    fence=each["fence"], attempt=each["attempt"],
                )
            )  # fmt: skip
            op = self.recorder.op()
            self._add(history.Settle(self.recorder.at, op, "ack", receipt))
            status, told = self._ask("POST", f"{path}/ack", {"receipts": [receipt]})
            self._add(history.Verdict(self.recorder.at, op, _result(status, told)))

    def _must_be_gone(self, url: str) -> None:
        body = {"messages": [{"body": {"uid": "late"}}]}
        status, _ = self._ask("POST", f"/v1/queues/{QUEUE}/messages", body, url)
        self._hold("published to a deleted queue", status == 200)

    def _hold(self, name: str, broken: bool) -> None:
        if broken:
            self._add(history.Bound(self.recorder.at, name, 1, 0))

    def _add(self, event: history.AnyEvent) -> None:
        self.recorder.add(event)

    def _surely(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, gone: bool = False
    ) -> None:
        """Until it is done. `gone`: or until there is nothing to do any more."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, answer = self._ask(method, path, body)
            if 200 <= status < 300 or (gone and status == 404):
                return
            if status and status not in (429, 503):
                raise AssertionError(f"{method} {path}: {status} {answer}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{method} {path}: {status} {answer} for {PATIENCE_S:g} s")
            time.sleep(0.2)

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, url: str = ""
    ) -> tuple[int, Any]:
        """The status and the answer; 0: there was none."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        where = (url or self._rng.choice(self._urls)) + path
        request = urllib.request.Request(where, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, ValueError) as error:
            return 0, repr(error)


def _result(status: int, told: Any) -> history.Result:
    if status != 200:
        return "unknown"
    if told.get("lease_lost"):
        return "lease_lost"
    return "duplicate" if told.get("duplicate") else "ok"
