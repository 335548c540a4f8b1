"""The workers of docs/worker.md as processes: they work, reject, and stop in good order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pushlane import testing
from tests.docs.page import read_blocks
from tests.gateway.process import environment
from tests.repo import ROOT

PAGE = (ROOT / "docs" / "worker.md").read_text()
COMMANDS = {
    "python": ["worker.py", sys.executable],
    "js": ["worker.mjs", "node", "--experimental-websocket", "--no-warnings"],
}
SMALL = "1000: 168 primes\n"
LARGE = {"python": (200_000, 17_984), "js": (2_000_000, 148_933)}
"""Long enough to be under way when the worker is told to stop."""


def ask(url: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{url}/v1/queues/{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def publish(url: str, body: object) -> None:
    ask(url, "primes/messages", {"messages": [{"body": body}]})


@pytest.fixture
def url() -> Iterator[str]:
    with testing.server() as url:
        yield url


def start(folder: Path, url: str, language: str) -> subprocess.Popen[str]:
    name, *command = COMMANDS[language]
    [source] = [block.text for block in read_blocks(PAGE) if block.language == language]
    if language == "js":
        (folder / "node_modules").mkdir()
        (folder / "node_modules" / "pushlane").symlink_to(ROOT / "sdk_js")
    (folder / name).write_text(source)
    return subprocess.Popen(
        [*command, name], cwd=folder, env={**environment(), "PUSHLANE_URL": url},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_under_way(stats: dict[str, int]) -> bool:
    """The large one: the small one is acked."""
    return stats["acked"] == stats["leased"] == 1


@pytest.mark.parametrize("language", COMMANDS)
def test_worker(tmp_path: Path, url: str, language: str) -> None:
    limit, count = LARGE[language]
    publish(url, "ten")
    publish(url, 1000)
    with start(tmp_path, url, language) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == SMALL
        publish(url, limit)
        while not is_under_way(ask(url, "primes/stats")):
            os.sched_yield()
        worker.send_signal(signal.SIGTERM)
        printed, errors = worker.communicate(timeout=120)
    assert (worker.returncode, errors) == (0, "")
    assert printed == f"{limit}: {count} primes\n"
    left = ask(url, "primes/stats")
    assert (left["stored"], left["acked"], left["dead"]) == (0, 2, 1)
    [dead] = ask(url, "primes.dead/peek")["messages"]
    assert (dead["body"], dead["dead"]["cause"]) == ("ten", "rejected")
