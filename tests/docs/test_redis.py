"""The page on Redis, run with a Redis that it may shut down; and what it names is there."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane import testing
from pushlane_dispatcher.settings import Settings
from pushlane_leases.redis.url import TLS_OPTIONS, RedisLimits
from tests.docs.console import Example, read_examples
from tests.docs.machine import Machine
from tests.docs.page import read_blocks
from tests.repo import ROOT
from tests.services import service
from tools.services.redis import Redis, running_redis

PAGE = (ROOT / "docs" / "redis.md").read_text()
PORT = ":6379"


class RedisMachine(Machine):
    """A machine with a Redis, on another port than the page says."""

    def __init__(self, folder: Path, redis: Redis) -> None:
        super().__init__(folder)
        self._redis_port = f":{redis.port}"

    def here(self, text: str) -> str:
        return super().here(text).replace(PORT, self._redis_port)

    def run(self, example: Example) -> None:
        super().run(example._replace(shown=example.shown.replace(PORT, self._redis_port)))


@pytest.fixture
def server() -> Iterator[Redis]:
    with running_redis() as server:
        yield server
        server.kill()  # the page has shut it down: that is no failure


def test_the_page(tmp_path: Path, server: Redis) -> None:
    machine = RedisMachine(tmp_path, server)
    ran = 0
    try:
        for block in read_blocks(PAGE):
            assert (block.language, block.why_not) == ("console", None)
            for example in read_examples(block.text, block.line):
                machine.run(example)
                ran += 1
    finally:
        machine.stop()
    assert ran == 7
    assert not server.process.running


def test_metrics() -> None:
    with (
        testing.server(arguments=["--leases", service("redis").redis_url]) as url,
        urllib.request.urlopen(f"{url}/metrics") as answer,
    ):
        served = set(re.findall(r"^# HELP (pushlane_lease_\w+) ", answer.read().decode(), re.M))
    assert served == set(re.findall(r"`(pushlane_lease_\w+)`", PAGE))


def test_numbers() -> None:
    limits, settings = RedisLimits(), Settings()
    for name, shown in (
        ("cache_ms", f"({settings.cache_ms} ms)"),
        ("cache_claim_ms", f"({settings.cache_claim_ms // 1000} s)"),
        ("cache_failures", f"({settings.cache_failures})"),
        ("cache_rest_ms", f"({settings.cache_rest_ms // 1000} s)"),
    ):
        assert f"`dispatcher.{name}` {shown}" in PAGE
    assert f"at most\n{limits.shard_runs:,}" in PAGE
    assert f"{limits.epoch_ms // 3_600_000} h after" in PAGE
    assert limits.grace_ms == 60_000
    for option in TLS_OPTIONS:
        assert option in PAGE
