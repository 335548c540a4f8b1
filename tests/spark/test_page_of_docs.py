"""docs/spark.md: its examples run, and its command names the jars that we use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_history.event import write
from pushlane_spark.jars import packages
from pushlane_spark.queue import QUEUE
from pushlane_spark.session import DEFAULTS
from tests.docs.page import read_blocks
from tests.docs.python import Python
from tests.history.test_command import ACKED, END, STORED
from tests.repo import ROOT
from tests.spark.traffic import until_dead

PAGE = (ROOT / "docs" / "spark.md").read_text()
BLOCKS = read_blocks(PAGE)


async def fill(folder: Path) -> None:
    async with server(store=f"sqlite:{folder}") as at, pushlane.connect(at) as client:
        for order, key in ((1, None), (2, "ann"), (3, "bob"), (4, None)):
            await client.publish("orders", {"order": order}, key=key)
        subscription = await client.subscribe("orders", credit=1)
        await (await anext(subscription)).ack()
        second = await anext(subscription)
        await second.reject("no such article")
        await until_dead(client, second.id)
        await subscription.close()


def test_examples(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(fill(tmp_path / "pushlane-data"))
    for name, history in (("clean", [*STORED, *ACKED, *END]), ("broken", [*STORED, *END])):
        with (tmp_path / f"{name}.jsonl").open("wb") as file:
            write(file, history)
    monkeypatch.chdir(tmp_path)
    python = Python("docs/spark.md", shared=True)
    try:
        for block in BLOCKS:
            if block.language == "python":
                python.run(block, here(block.text, tmp_path))
    finally:
        python.close()


def here(text: str, folder: Path) -> str:
    """Java keeps the folder that it was started in."""
    names = [f'"{name}.jsonl"' for name in ("clean", "broken")]
    for name in names:
        text = text.replace(name, f'"{folder}/{name[1:]}')
    return text


def test_a_cluster_gets_the_same() -> None:
    [command] = [block.text for block in BLOCKS if block.language == "sh"]
    assert f"--packages {','.join(packages())} " in command
    settings = dict(part.split("=") for part in command.split() if part.startswith("spark."))
    assert settings.items() <= DEFAULTS.items()
    assert len(settings) == 4


def test_all_columns_are_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    named = [name.strip(" `") for row in rows for name in row.split(",")]
    assert sorted(named) == sorted(QUEUE.names)
