"""docs/history.md: a real server records, is killed, records again, and its history is audited."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane_history.checker import check
from pushlane_spark.auditing.report import audit
from tests.crash.node import Node
from tests.dispatcher.recording.served import recorded, run_load
from tests.docs.page import read_blocks
from tests.docs.python import Python
from tests.repo import ROOT

BLOCKS = read_blocks((ROOT / "docs" / "history.md").read_text())
[CONFIGURATION] = [block.text for block in BLOCKS if block.language == "toml"]


def serve(folder: Path, plant: str = "") -> Path:
    """The history of a server that is configured as the page says, and killed half-way."""
    name = str(tomllib.loads(CONFIGURATION)["history"]["folder"]).removeprefix("./")
    text = CONFIGURATION.replace(f"./{name}", str(folder / name))
    assert text != CONFIGURATION
    (folder / "pushlane.toml").write_text(text)
    backing = ["--data", str(folder / "data"), "--config", str(folder / "pushlane.toml")]
    node = Node(folder, plant, backing=backing, planted="tests.dispatcher.recording.planted")
    try:
        node.spawn()
        node.wait_until_ready()
        run_load(node.url, until=lambda count: count > 60)
        node.kill()
        node.spawn()
        node.wait_until_ready()
        run_load(node.url)
        assert node.terminate() == 0
    finally:
        node.close()
    return folder / name


def test_the_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = serve(tmp_path)
    monkeypatch.chdir(tmp_path)
    python = Python("docs/history.md", shared=True)
    try:
        for block in BLOCKS:
            if block.language == "python":
                python.run(block, block.text.replace('"pushlane-history"', f'"{folder}"'))
    finally:
        python.close()
    report, expected = audit(spark, str(folder))[str(folder)], check(recorded(folder))
    assert (report.events, report.notes) == (expected.events, expected.notes)
    assert sum(report.events.values()) > 2_000


def test_a_bug_of_the_server(spark: SparkSession, tmp_path: Path) -> None:
    folder = serve(tmp_path, "lost-acks")
    report, expected = audit(spark, str(folder))[str(folder)], check(recorded(folder))
    assert report.broken == expected.broken
    assert report.broken["grant_after_ack"] > 10
