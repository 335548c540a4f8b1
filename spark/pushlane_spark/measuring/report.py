"""The job: a page for operators and one for each tenant, and their plots as files.

operators.html  operators/throughput.png …  tenants/acme.html  tenants/acme/throughput.png …
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from pushlane_spark.measuring.anomalies import WEEK, WEEKS, Anomaly, find_anomalies
from pushlane_spark.measuring.page import make_page
from pushlane_spark.measuring.plots import draw
from pushlane_spark.measuring.series import (
    LATENCIES,
    Counted,
    Counters,
    count,
    step_of,
    together,
)
from pushlane_spark.measuring.stored import NOTHING, look_at
from pushlane_spark.measuring.view import View, make_view
from pushlane_spark.period import minutes_between, time_of
from pushlane_spark.source import open_source

MOST_TENANTS = 100
"""Tenants that get a page of their own: those with the most messages."""
OPERATORS = "operators"


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime
    until: datetime
    step_minutes: int
    """How long a point of a plot is."""
    totals: dict[str, int]
    """All counters of the period, without histograms."""
    anomalies: list[Anomaly]
    pages: list[str]
    """Below the folder that was named; beside each is a folder with its plots."""
    plots: int
    tenants_left_out: int
    """Tenants that got no page, because there are too many."""


def run(
    spark: SparkSession,
    store: str,
    *,
    since: datetime,
    until: datetime,
    out: str | Path,
    tenant: str | None = None,
    archive: str | None = None,
    weeks: int = WEEKS,
    most_tenants: int = MOST_TENANTS,
    messages: bool = True,
) -> MetricsReport:
    """Measure all tenants, or one, of which alone there is a page then; `JobError`.

    `weeks` are looked at before the period; without `messages` only usage is read.
    """
    period = minutes_between(since, until)
    source = open_source(spark, store)
    step = step_of(period)
    counted = count(source.usage(period.first, period.last, tenant), step)
    earlier = source.usage(max(period.first - weeks * WEEK, 1), period.last, tenant)
    found = find_anomalies(earlier, period, weeks)
    stored = look_at(spark, source, period, tenant, archive) if messages else NOTHING
    readers, left_out = _readers(counted, tenant, most_tenants)
    pages, plots = [], 0
    for reader in readers:
        view = make_view(reader, period, step, counted, found, stored)
        page = f"{OPERATORS}.html" if reader is None else f"tenants/{reader}.html"
        plots += _write(view, Path(out), page)
        pages.append(page)
    return MetricsReport(
        since=time_of(period.first),
        until=time_of(period.end),
        step_minutes=step,
        totals=_totals(counted),
        anomalies=found,
        pages=pages,
        plots=plots,
        tenants_left_out=left_out,
    )


def _readers(counted: Counted, tenant: str | None, most: int) -> tuple[list[str | None], int]:
    """Who gets a page, None being operators; and how many tenants don't."""
    if tenant is not None:
        return [tenant], 0
    busy: dict[str, int] = {}
    for (whose, _), counters in counted.queues.items():
        busy[whose] = busy.get(whose, 0) + counters.get("published", 0)
    tenants = sorted(busy, key=lambda whose: (-busy[whose], whose))
    return [None, *sorted(tenants[:most])], len(tenants[most:])


def _write(view: View, out: Path, page: str) -> int:
    """The page and its plots; how many there are."""
    path = out / page
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(view)
    drawn = 0
    for plot in plots:
        file = folder / f"{plot.name}.png"
        if plot.png is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(plot.png)
            drawn += 1
    path.write_text(make_page(view, plots))
    return drawn


def _totals(counted: Counted) -> Counters:
    total = together(counted.queues.values())
    histograms = tuple(f"{name}." for name in LATENCIES)
    return {name: total[name] for name in sorted(total) if not name.startswith(histograms)}
