"""A server with small buckets, on a store of each kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane.testing import server
from tests.spark.traffic import START_SECONDS
from tests.spark.usage_store import make_keyspace

_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "cassandra"])
def store(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'store'}"
    return make_keyspace(f"retaining_{next(_numbers)}")


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Arguments of a server whose buckets hold ten messages."""
    config = tmp_path / "small.toml"
    config.write_text("[shard]\nbucket_messages = 10\nsegment_messages = 4\n")
    return ["--config", str(config)]


@pytest.fixture
def served(store: str, small: list[str]) -> Iterator[server]:
    with (running := server(store=store, arguments=small, start_s=START_SECONDS)):
        yield running
