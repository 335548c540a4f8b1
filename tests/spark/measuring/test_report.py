"""The metrics job on both stores, and its page in Chromium."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.errors import PeriodUnfit, StoreUnreadable
from pushlane_spark.measuring.report import MetricsReport, run
from pushlane_spark.period import time_of
from tests.spark.measuring.chromium import look_at_page
from tests.spark.measuring.test_plots import NAMES
from tests.spark.usage_store import MONDAY, UsageRow, make_folder, make_keyspace, put
from tools.sample_store import DAY, make_store, write_messages, write_usage

MIDNIGHT = time_of(MONDAY)
HOUR = timedelta(hours=1)


class Made(NamedTuple):
    url: str
    out: Path
    report: MetricsReport


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The report of a sample store: a day of it, with weeks before."""
    folder = tmp_path_factory.mktemp("metrics")
    data, out = folder / "data", folder / "report"
    make_store(data)
    write_usage(data, MONDAY, MONDAY + DAY)
    write_messages(data, 500, MONDAY, MONDAY + DAY)
    url = f"sqlite:{data}"
    report = run(spark, url, since=MIDNIGHT, until=MIDNIGHT + 24 * HOUR, out=out)
    return Made(url, out, report)


def test_what_is_reported(made: Made) -> None:
    report = made.report
    assert (report.since, report.until) == (MIDNIGHT, MIDNIGHT + 24 * HOUR)
    assert report.step_minutes == 15
    assert report.pages == ["operators.html", "tenants/acme.html", "tenants/globex.html"]
    assert report.tenants_left_out == 0
    totals = report.totals
    assert totals["delivered"] == totals["started"] > totals["published"] > 10**6
    assert not [name for name in totals if "_ms." in name]
    found = {(anomaly.tenant, anomaly.queue, anomaly.measure) for anomaly in report.anomalies}
    assert ("acme", "emails", "dead") in found
    assert ("globex", "telemetry", "published") in found


def test_plots_are_files_too(made: Made) -> None:
    files = sorted(made.out.rglob("*.png"))
    assert len(files) == made.report.plots
    assert sorted(path.stem for path in files if path.parent.name == "operators") == sorted(NAMES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files)


def test_the_page_in_chromium(made: Made, tmp_path: Path) -> None:
    seen = look_at_page(made.out / "operators.html", tmp_path)
    assert seen.loaded == []
    assert not seen.wide
    assert len(seen.pictures) == len(NAMES)
    for title, natural, shown in seen.pictures:
        assert natural > 700, title
        assert shown > 400, title
    assert seen.heads[:3] == ["Pushlane metrics", "Anomalies", "Throughput"]
    assert {"Latency", "Backlog", "Queues", "Hot keys", "Stored messages"} <= {*seen.heads}


def test_a_tenants_page_has_nothing_of_others(made: Made) -> None:
    page = (made.out / "tenants" / "acme.html").read_text()
    assert "orders" in page
    assert "globex" not in page
    assert "telemetry" not in page


def test_one_tenant_alone(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    until = MIDNIGHT + 2 * HOUR
    tenant = "globex"
    report = run(
        spark,
        made.url,
        since=MIDNIGHT,
        until=until,
        out=tmp_path,
        tenant=tenant,
        weeks=0,
        messages=False,
    )
    assert report.pages == ["tenants/globex.html"]
    assert {path.name for path in tmp_path.iterdir()} == {"tenants"}
    assert report.anomalies == []
    assert 0 < report.totals["published"] < made.report.totals["published"]
    page = (tmp_path / "tenants" / "globex.html").read_text()
    assert "orders" not in page
    assert "No message of the period is in the store" in page


def test_cassandra_and_tenants_that_are_too_many(spark: SparkSession, tmp_path: Path) -> None:
    url = make_keyspace("metrics")
    counts = {"ann": 5, "bob": 9, "cis": 7}
    rows = [UsageRow(name, "q", MONDAY, "i/0", {"published": n}) for name, n in counts.items()]
    put(url, rows)

    def measure(until: datetime) -> MetricsReport:
        return run(
            spark,
            url,
            since=MIDNIGHT,
            until=until,
            out=tmp_path,
            most_tenants=2,
            weeks=1,
            messages=False,
        )

    report = measure(MIDNIGHT + HOUR)
    assert report.totals == {"published": 21}
    assert report.pages == ["operators.html", "tenants/bob.html", "tenants/cis.html"]
    assert report.tenants_left_out == 1
    assert (tmp_path / "operators" / "throughput.png").exists()
    with pytest.raises(PeriodUnfit):
        measure(MIDNIGHT)


def test_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    url = make_folder(tmp_path / "data")
    report = run(spark, url, since=MIDNIGHT, until=MIDNIGHT + HOUR, out=tmp_path / "out")
    assert (report.totals, report.anomalies, report.plots) == ({}, [], 0)
    assert report.pages == ["operators.html"]


def test_no_store(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}"
    with pytest.raises(StoreUnreadable):
        run(spark, url, since=MIDNIGHT, until=MIDNIGHT + HOUR, out=tmp_path)
