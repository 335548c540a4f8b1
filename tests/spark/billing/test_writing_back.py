"""Bills of a folder that a server has go through that server, and are seen in `/v1/usage`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from pushlane.testing import server
from pushlane_spark.billing.pricing import COSTS
from pushlane_spark.billing.writing_back import Row, StoreServed, rows_of, write_back
from pushlane_spark.errors import ServerRefused
from pushlane_spark.server import Server

HOUR = 60


def make(tenant: str, total: int) -> list[Row]:
    window = int(time.time()) // 3600 * HOUR
    line = {"tenant": tenant, "queue": "orders", "window": window, "minutes": HOUR, "total": total}
    return rows_of([line | dict.fromkeys(COSTS, 0)])


def test_through_the_server(spark: SparkSession, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/data"
    with server(store=store) as url:
        with pytest.raises(StoreServed):
            write_back(spark, store, make("default", 5))
        for total in (7, 5):
            assert write_back(spark, store, make("default", total), Server(url)) == 1
        assert write_back(spark, store, make("acme", 5), Server(url)) == 1  # who operates it may
        with pytest.raises(ServerRefused, match="tenant name"):
            write_back(spark, store, make("not a tenant", 5), Server(url))
        with urlopen(f"{url.replace('ws://', 'http://')}/v1/usage?by=hour") as answer:
            [shown] = json.load(answer)["usage"]
        assert shown["queue"] == "orders"
        assert shown["counters"]["billing.hour.total"] == 5
