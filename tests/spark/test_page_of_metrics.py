"""docs/metrics.md: its examples run, and what it names is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.billing.exporting import COLUMNS
from pushlane_spark.billing.rate_card import ITEMS, parse_rate_card
from pushlane_spark.measuring.anomalies import MEASURES, MOST
from pushlane_spark.measuring.report import MOST_TENANTS
from tests.docs.page import read_blocks
from tests.docs.python import Python
from tests.repo import ROOT
from tests.spark.usage_store import MONDAY, UsageRow, make_folder, put

PAGE = (ROOT / "docs" / "metrics.md").read_text()
BLOCKS = read_blocks(PAGE)
[CARD] = [block.text for block in BLOCKS if block.language == "toml"]


def test_examples(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = make_folder(tmp_path / "pushlane-data")
    counters = {"published": 1_500_000, "acked": 1_500_000}
    put(url, [UsageRow("acme", "orders", MONDAY + hour, "q/0", counters) for hour in (0, 60)])
    (tmp_path / "rates.toml").write_text(CARD)
    monkeypatch.chdir(tmp_path)
    python = Python("docs/metrics.md", shared=True)
    try:
        for block in BLOCKS:
            if block.language == "python":
                # Java keeps the folder that it was started in.
                python.run(block, block.text.replace('"bills/', f'"{tmp_path}/bills/'))
    finally:
        python.close()
    files = {str(path.relative_to(tmp_path / "bills")) for path in tmp_path.glob("bills/**/*.*")}
    [shown] = [block.text.split() for block in BLOCKS if block.language == "text"]
    assert set(shown) == files


def test_all_that_is_named_is_there() -> None:
    card = parse_rate_card(CARD)
    assert all(card.prices[0].usual[name] > 0 for name in ITEMS)
    assert all(f"`{name}`" in PAGE for name in ITEMS)
    named = {*re.findall("`([a-z_]+)`", PAGE)}
    costs = {name for name in COLUMNS.names if name.endswith("_cost")}
    assert set(COLUMNS.names) - costs <= named
    flat = PAGE.replace("\n", " ")
    assert f"names the {MOST} greatest" in flat
    assert f"of the {MOST_TENANTS} with the most messages" in flat
    floors = [f"{measure.floor:g}" for measure in MEASURES.values()]
    [sentence] = re.findall(r"a floor: ([^.]*)\.", flat)
    assert re.findall(r"\d+", sentence) == floors
