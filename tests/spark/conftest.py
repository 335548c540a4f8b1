"""One Spark for all tests of a run: it takes seconds to start, and a gigabyte."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.session import open_session
from tests.spark.traffic import Sent, write_traffic
from tests.spark.usage_store import make_keyspace

# Where `make clean` finds them.
os.environ.setdefault("PUSHLANE_JARS", str(Path(sys.prefix, "services")))

SETTINGS = {
    # Frames are tiny here: what takes the time is compiling plans, and starting tasks.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "768m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}

HERE = Path(__file__).parent


FIRST = ("test_kill.py", "test_jobs_command.py", "test_busy_server.py")
"""The files that take longest: with one of them at the end, all other workers would wait for it.
xdist must be told to keep the order (`--no-loadscope-reorder`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first. And Spark leaves sockets to the garbage collector."""
    items.sort(key=lambda item: item.path.name not in FIRST)
    for item in items:
        if item.path.is_relative_to(HERE):
            left = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
            item.add_marker(pytest.mark.filterwarnings(left))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", master="local[1, 2]", settings=SETTINGS)
    yield session
    session.stop()


Traffic = tuple[str, dict[str, Sent]]


@pytest.fixture(scope="session")
def written() -> dict[str, Traffic]:
    """By kind: pytest makes a fixture anew whenever its parameter changes."""
    return {}


@pytest.fixture(scope="session", params=["sqlite", "cassandra"])
def traffic(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    written: dict[str, Traffic],
    tmp_path_factory: pytest.TempPathFactory,
) -> Traffic:
    """A store's URL, and what clients know of it."""
    kind = request.param
    if kind not in written:
        folder = tmp_path_factory.mktemp("traffic")
        url = f"sqlite:{folder}" if kind == "sqlite" else make_keyspace("spark")
        written[kind] = url, asyncio.run(write_traffic(url))
    return written[kind]
