"""docs/retention.md: its example runs, and it says what there is."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_spark.retaining import commits, plan, run
from tests.docs.page import read_blocks
from tests.docs.python import Python
from tests.repo import ROOT
from tests.spark.retaining.ledger import Ledger
from tests.spark.retaining.load import consume, fill, make

PAGE = (ROOT / "docs" / "retention.md").read_text()


def test_the_example(spark: SparkSession, small: list[str], tmp_path: Path) -> None:
    async def begin(url: str) -> None:
        ledger = Ledger()
        async with pushlane.connect(url) as client:
            await make(client)
            await fill(client, ledger, 25)
            await consume(client, ledger, 22)

    [block] = [block for block in read_blocks(PAGE) if block.language == "python"]
    python = Python("docs/retention.md", shared=True)
    with server(store=f"sqlite:{tmp_path}/pushlane-data", arguments=small) as url:
        asyncio.run(begin(url))
        text = block.text.replace("http://127.0.0.1:8420", url)
        try:  # Java keeps the folder that it was started in
            python.run(
                block,
                text.replace('"./archive', f'"{tmp_path}/archive').replace(
                    "./pushlane", f"{tmp_path}/pushlane"
                ),
            )
        finally:
            python.close()


def test_all_arguments_are_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name.strip(" `") for row in rows for name in row.split(",")}
    assert set(inspect.signature(run).parameters) - {"spark"} <= named
    assert f"({plan.GROUP_MESSAGES:,})" in PAGE
    for folder in (commits.STAGING, commits.COMMITS, commits.MANIFESTS, commits.TURN):
        assert f"`{folder}" in PAGE
