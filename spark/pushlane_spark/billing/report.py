"""The job: usage of whole days, priced, exported, and written back.

All of a day is computed from the usage that there is now, so late rows only need another run over
their day, and a run over the same usage changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from pushlane_spark.billing.exporting import Line, export
from pushlane_spark.billing.pricing import COUNTERS, make_lines
from pushlane_spark.billing.rate_card import RateCard, day_of, read_rate_card
from pushlane_spark.billing.storage import MINUTE_MS, read_shards, with_storage
from pushlane_spark.billing.writing_back import StoreServed, rows_of, write_back
from pushlane_spark.period import minutes_between, time_of
from pushlane_spark.server import Server
from pushlane_spark.source import open_source
from pushlane_spark.usage_frames import DAY
from pushlane_storage.wall import wall_clock

DAYS_AT_ONCE = 7
"""So much is held in memory: its lines of hours and days."""


class TenantBill(msgspec.Struct, frozen=True):
    tenant: str
    used: dict[str, int]
    """Sums of counters."""
    micros: int
    """What it costs, in millionths of the currency."""


class BillingReport(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime
    until: datetime
    """Whole days: those that the period which was asked for has a part in."""
    currency: str
    lines: int
    tenants: list[TenantBill]
    files: list[str]
    """Below the folder that was named."""
    written_back: int
    """Rows of usage that the store took."""
    not_written_back: str | None = None
    """Why it took none."""


def run(
    spark: SparkSession,
    store: str,
    *,
    since: datetime,
    until: datetime,
    rate_card: str | Path | RateCard,
    out: str | Path,
    tenant: str | None = None,
    writes_back: bool = True,
    url: str | None = None,
    token: str | None = None,
    now: int | None = None,
) -> BillingReport:
    """Bill all tenants, or one, for whole days; `JobError`.

    A folder that a server has locked is written back to by that server, whose `url` this is;
    without one the report says that it was not. `now` is the time to go by, in Unix milliseconds.
    """
    now = wall_clock() if now is None else now
    server = None if url is None else Server(url, token)
    card = rate_card if isinstance(rate_card, RateCard) else read_rate_card(rate_card)
    days = minutes_between(since, until).whole()
    card.on(day_of(days.first))
    source = open_source(spark, store)
    out = Path(out) if tenant is None else Path(out, f"tenant={tenant}")
    shards = read_shards(source, tenant)
    found = _Found()
    for part in days.parts(DAYS_AT_ONCE * DAY):
        usage = source.usage(part.first, part.last, tenant)
        whole = with_storage(source, usage, shards, part, now // MINUTE_MS, tenant)
        lines = [row.asDict() for row in make_lines(whole, card).collect()]
        found.files += export(lines, part, card.currency, out)
        found.count(lines)
        if writes_back and found.reason is None:
            try:
                found.written += write_back(spark, store, rows_of(lines), server)
            except StoreServed as error:
                found.reason = str(error)
    return BillingReport(
        since=time_of(days.first),
        until=time_of(days.end),
        currency=card.currency,
        lines=found.lines,
        tenants=[found.bills[name] for name in sorted(found.bills)],
        files=found.files,
        written_back=found.written,
        not_written_back=found.reason,
    )


class _Found:
    """What becomes the report."""

    def __init__(self) -> None:
        self.lines = self.written = 0
        self.bills: dict[str, TenantBill] = {}
        self.files: list[str] = []
        self.reason: str | None = None

    def count(self, lines: Sequence[Line]) -> None:
        self.lines += len(lines)
        for line in lines:
            if line["minutes"] == DAY:
                tenant = line["tenant"]
                known = self.bills.get(tenant) or TenantBill(tenant, dict.fromkeys(COUNTERS, 0), 0)
                used = {name: known.used[name] + line[name] for name in COUNTERS}
                self.bills[tenant] = TenantBill(tenant, used, known.micros + line["total"])
