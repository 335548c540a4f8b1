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
from tests.services import service
from tests.spark.traffic import Sent, write_traffic

# Where `make clean` finds them.
os.environ.setdefault("PUSHLANE_JARS", str(Path(sys.prefix, "services")))

SETTINGS = {
    # Frames are tiny here: what takes the time is compiling plans, and starting tasks.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "768m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark leaves the sockets of its results to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            left = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
            item.add_marker(pytest.mark.filterwarnings(left))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", master="local[1, 2]", settings=SETTINGS)
    yield session
    session.stop()


@pytest.fixture(scope="session", params=["sqlite", "cassandra"])
def traffic(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Sent]]:
    """A store's URL, and what clients know of it."""
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path_factory.mktemp('traffic')}"
    else:
        url = service("cassandra").cassandra_url(f"spark_{os.getpid()}")
    return url, asyncio.run(write_traffic(url))
