"""The billing job on both stores: late rows, a second run, a folder that is served."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.billing import report as job
from pushlane_spark.billing.rate_card import parse_rate_card
from pushlane_spark.billing.report import TenantBill, run
from pushlane_spark.errors import RateCardUnfit, StoreUnreadable
from pushlane_storage.sqlite.folder import open_folder
from pushlane_storage.usage import BILLING
from tests.spark.billing.test_exporting import content
from tests.spark.billing.test_pricing import NOTHING
from tests.spark.billing.test_rate_card import CARD
from tests.spark.usage_store import (
    DAY,
    MONDAY,
    UsageRow,
    make_folder,
    make_keyspace,
    put,
    read,
)

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
ASKED: dict[str, Any] = {"since": NOON, "until": NOON + timedelta(hours=1)}
ROWS = [
    UsageRow("ann", "a", MONDAY, "q/0", {"published": 20_000_000}),
    UsageRow("ann", "a", MONDAY + 61, "q/0", {"published": 10_000_000}),
    UsageRow("bob", "", MONDAY + DAY - 1, "n.1", {"connection_ms": 3_600_000}),
    UsageRow("bob", "b", MONDAY + DAY, "q/0", {"published": 5_000_000}),
]


@pytest.mark.parametrize("kind", ["sqlite", "cassandra"])
def test_a_day_late_rows_and_once_more(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    url = make_folder(tmp_path / "data") if kind == "sqlite" else make_keyspace("billing")
    put(url, ROWS)
    (tmp_path / "rates.toml").write_text(CARD)
    out = tmp_path / "out"

    def bill() -> job.BillingReport:
        return run(spark, url, **ASKED, rate_card=tmp_path / "rates.toml", out=out)

    first = bill()
    assert (first.since, first.until) == (NOON - timedelta(hours=12), NOON + timedelta(hours=12))
    assert first.tenants == [
        TenantBill("ann", {**NOTHING, "published": 30_000_000}, 3_000_000),
        TenantBill("bob", {**NOTHING, "connection_ms": 3_600_000}, 0),
    ]
    assert (first.currency, first.lines, first.written_back) == ("EUR", 5, 4)
    assert first.not_written_back is None
    stored, files = read(url, BILLING), content(out)
    midnight = stored["ann", "a", MONDAY]
    assert (midnight["billing.hour.total"], midnight["billing.day.total"]) == (2_000_000, 3_000_000)
    assert midnight["billing.day.published"] == 3_000_000
    assert stored["ann", "a", MONDAY + 60]["billing.hour.total"] == 1_000_000
    assert len(stored) == 4

    assert bill() == first
    assert (read(url, BILLING), content(out)) == (stored, files)

    put(url, [UsageRow("ann", "a", MONDAY + 62, "n.1", {"bytes_out": 2**30})])
    late = bill()
    assert late.tenants[0].micros == 3_050_000
    again = read(url, BILLING)
    assert again["ann", "a", MONDAY]["billing.day.total"] == 3_050_000
    assert again["ann", "a", MONDAY + 60]["billing.hour.total"] == 1_050_000
    assert again["ann", "a", MONDAY]["billing.hour.total"] == 2_000_000
    changed = {name for name, text in content(out).items() if text != files[name]}
    assert changed == files.keys()


def test_a_folder_that_is_served_is_not_written_to(spark: SparkSession, tmp_path: Path) -> None:
    url = make_folder(tmp_path / "data")
    put(url, ROWS)
    folder = open_folder(tmp_path / "data")
    try:
        report = run(spark, url, **ASKED, rate_card=parse_rate_card(CARD), out=tmp_path / "out")
    finally:
        folder.close()
    assert report.written_back == 0
    assert report.not_written_back is not None
    assert len(report.files) == 4
    assert read(url, BILLING) == {}


def test_one_tenant_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "DAYS_AT_ONCE", 1)
    url = make_folder(tmp_path / "data")
    put(url, ROWS)
    asked: dict[str, Any] = {"since": NOON, "until": NOON + timedelta(days=1), "tenant": "bob"}
    report = run(
        spark, url, **asked, rate_card=parse_rate_card(CARD), out=tmp_path, writes_back=False
    )
    assert [bill.tenant for bill in report.tenants] == ["bob"]
    assert report.tenants[0].micros == 10_000_000
    assert len(content(tmp_path / "tenant=bob")) == 8
    assert report.written_back == 0
    assert read(url, BILLING) == {}


def test_what_is_wrong_is_said_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    old: dict[str, Any] = {"since": NOON - timedelta(days=900), "until": NOON}
    with pytest.raises(RateCardUnfit, match="no prices for 2023"):
        run(spark, "sqlite:nowhere", **old, rate_card=parse_rate_card(CARD), out=tmp_path)
    with pytest.raises(StoreUnreadable):
        run(spark, "sqlite:nowhere", **ASKED, rate_card=parse_rate_card(CARD), out=tmp_path)
