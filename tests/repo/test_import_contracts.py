"""The import contracts of pyproject.toml hold, and each of them can fail.

A contract that names a package wrongly holds for ever. So every contract is broken once here: one
import is planted into a copy of the sources, and exactly the contracts meant must report it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import ROOT

SOURCES = ["gateway", "dispatcher", "storage", "leases", "history", "spark", "sdk_py/src"]

LAYERS = "Imports go down: gateway, dispatcher, storage, leases and history, pushlane"
GATEWAY = "The gateway reaches storage, leases and history through the dispatcher only"
PORT = "The gateway knows the dispatcher's port and node only"
SPARK = "The Spark jobs know storage, history and pushlane only"
HISTORY = "The history checker judges the product and knows nothing of it"
WIRE = "The server knows pushlane.wire only, not the rest of the SDK"
WIRE_ALONE = "pushlane.wire knows nothing of the rest of the SDK"
CORE = "The dispatcher's core does no I/O, reads no clock and draws no random number"
TRIO = "The server runs on trio: it doesn't import asyncio"

DISPATCHER = "dispatcher/pushlane_dispatcher"
PLANTS = [
    (DISPATCHER, "pushlane_gateway", {LAYERS}),
    ("storage/pushlane_storage", "pushlane_dispatcher", {LAYERS}),
    ("storage/pushlane_storage", "pushlane_leases", {LAYERS}),
    ("leases/pushlane_leases", "pushlane_storage", {LAYERS}),
    ("leases/pushlane_leases", "pushlane_spark", {LAYERS, WIRE}),  # jobs use the SDK
    ("storage/pushlane_storage", "pushlane_history", {LAYERS}),
    ("history/pushlane_history", "pushlane_storage", {LAYERS, HISTORY}),
    ("history/pushlane_history", "pushlane.wire", {HISTORY}),
    ("sdk_py/src/pushlane", "pushlane_storage", {LAYERS}),
    ("gateway/pushlane_gateway", "pushlane_storage", {GATEWAY}),
    ("gateway/pushlane_gateway", "pushlane_leases", {GATEWAY}),
    ("gateway/pushlane_gateway", "pushlane_history", {GATEWAY}),
    ("gateway/pushlane_gateway", "pushlane_dispatcher.callers.feed", {PORT}),
    ("gateway/pushlane_gateway", "pushlane_dispatcher.core.subscription", {PORT}),
    ("spark/pushlane_spark", "pushlane_dispatcher", {SPARK}),
    ("spark/pushlane_spark", "pushlane_leases", {SPARK}),
    ("storage/pushlane_storage", "pushlane.cli", {WIRE}),
    (DISPATCHER, "pushlane", {WIRE}),
    ("sdk_py/src/pushlane/wire", "pushlane.cli", {WIRE_ALONE}),
    *[(f"{DISPATCHER}/core", name, {CORE}) for name in ("os", "socket", "threading", "trio")],
    *[(f"{DISPATCHER}/core", name, {CORE}) for name in ("pushlane_leases", "random", "time")],
    (f"{DISPATCHER}/core", "asyncio", {CORE, TRIO}),
    ("storage/pushlane_storage", "asyncio", {TRIO}),
    ("spark/pushlane_spark", "asyncio", {TRIO}),
    # and what must stay allowed
    ("gateway/pushlane_gateway", "pushlane_dispatcher", set()),
    ("gateway/pushlane_gateway", "pushlane_dispatcher.port", set()),
    (DISPATCHER, "pushlane_leases", set()),
    ("leases/pushlane_leases", "pushlane.wire", set()),
    (DISPATCHER, "pushlane_history", set()),
    ("spark/pushlane_spark", "pushlane_storage", set()),
    ("spark/pushlane_spark", "pushlane_history", set()),
    ("spark/pushlane_spark", "pushlane", set()),
    ("sdk_py/src/pushlane", "asyncio", set()),
]


def broken_contracts(tree: Path) -> set[str]:
    """The names of the contracts that the sources in `tree` break."""
    result = subprocess.run(
        [Path(sys.prefix, "bin", "lint-imports"), "--no-cache", "--no-logo"],
        cwd=tree,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(str(tree / folder) for folder in SOURCES),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
    )
    verdicts = re.findall(r"^(.+) (KEPT|BROKEN)", result.stdout, re.MULTILINE)
    assert verdicts, result.stdout + result.stderr
    broken = {name for name, verdict in verdicts if verdict == "BROKEN"}
    assert (result.returncode != 0) == bool(broken), result.stdout + result.stderr
    return broken


def test_the_contracts_hold() -> None:
    assert broken_contracts(ROOT) == set()


@pytest.mark.parametrize(("package", "imported", "broken"), PLANTS)
def test_a_planted_import_is_found(
    tmp_path: Path, package: str, imported: str, broken: set[str]
) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    (tmp_path / package / "planted.py").write_text(f"import {imported}\n")
    assert broken_contracts(tmp_path) == broken
