"""One Spark for all tests of a run: it takes seconds to start, and a gigabyte."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.session import open_session

# Where `make clean` finds them.
os.environ.setdefault("PUSHLANE_JARS", str(Path(sys.prefix, "services")))

SETTINGS = {"spark.driver.memory": "768m", "spark.sql.shuffle.partitions": "2"}

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark leaves the sockets of its results to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            left = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
            item.add_marker(pytest.mark.filterwarnings(left))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", master="local[1]", settings=SETTINGS)
    yield session
    session.stop()
