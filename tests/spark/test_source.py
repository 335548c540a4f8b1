"""Sources that can't be opened say why."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession

from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.look import Look
from pushlane_spark.source import open_source
from pushlane_storage.sqlite.store import SqliteStore
from tools.services.ports import free_port


async def make_empty(folder: Path) -> None:
    store = await SqliteStore.open(folder)
    await store.close()


@pytest.mark.parametrize("url", ["memory:", "orders", "redis://localhost"])
def test_what_is_no_store_of_ours(spark: SparkSession, url: str) -> None:
    with pytest.raises(StoreUnreadable, match="sqlite:DIR and cassandra://HOST/KEYSPACE can be"):
        open_source(spark, url)


def test_a_folder_without_a_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match=r"it has no pushlane\.db: give the folder"):
        open_source(spark, f"sqlite:{tmp_path}")
    (tmp_path / "pushlane.db").write_text("not a database, but long enough to be looked at")
    with pytest.raises(StoreUnreadable, match="can't be read"):
        open_source(spark, f"sqlite:{tmp_path}")


def test_a_store_of_a_newer_version(spark: SparkSession, tmp_path: Path) -> None:
    trio.run(make_empty, tmp_path)
    with closing(sqlite3.connect(tmp_path / "pushlane.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnreadable, match="written by a newer version"):
        open_source(spark, f"sqlite:{tmp_path}")


def test_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "with a space, and ü?"
    trio.run(make_empty, folder)
    before = (folder / "pushlane.db").read_bytes()
    look = Look(open_source(spark, f"sqlite:{folder}"))
    assert look.messages.count() == 0
    assert (folder / "pushlane.db").read_bytes() == before
    assert not (folder / "pushlane.db-wal").stat().st_size


def test_cassandra_without_its_extra(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(StoreUnreadable, match=r"pip install 'pushlane-server\[cluster\]'"):
        open_source(spark, "cassandra://127.0.0.1/pushlane")


def test_a_url_of_cassandra_that_is_wrong(spark: SparkSession) -> None:
    with pytest.raises(StoreUnreadable, match="a keyspace comes after the hosts") as failure:
        open_source(spark, "cassandra://ann:secret@127.0.0.1")
    assert "secret" not in str(failure.value)


def test_certificates_that_java_does_not_read(spark: SparkSession) -> None:
    with pytest.raises(StoreUnreadable, match=r"say tls=on, .*ssl\.trustStore\.path"):
        open_source(spark, "cassandra://127.0.0.1/pushlane?tls=/etc/ca.pem")


def test_a_cassandra_that_is_not_there(spark: SparkSession) -> None:
    url = f"cassandra://ann:secret@127.0.0.1:{free_port()}/pushlane"
    with pytest.raises(
        StoreUnreadable, match=r"cassandra://ann:\*\*\*@.* can't be read"
    ) as failure:
        open_source(spark, url)
    assert "secret" not in str(failure.value)
