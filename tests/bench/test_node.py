"""The load generator: its own tests, its lock file, and a short run against a real server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from bench.gateway import node
from bench.gateway.measure import numbers, served
from bench.gateway.systems import PUSHLANE

TIMEOUT = 120
FLOW = {"window": 256, "credit": 256, "warm_s": 0.1, "run_s": 0.4, "drain_s": 20}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> None:
    node.install()


def test_the_measuring_code(packages: None) -> None:
    command = ["node", "--test", str(node.FOLDER / "measures.test.mjs")]
    done = subprocess.run(
        command, cwd=node.FOLDER, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE)


def test_a_short_run_against_our_server(packages: None, tmp_path: Path) -> None:
    with served(PUSHLANE, tmp_path) as target:
        for count in (1, 4):
            found = numbers(
                node.measure(
                    target, "throughput", f"q{count}", producers=count, consumers=count, **FLOW
                )
            )
            assert found.messages > 0
            assert found.rate > 0
            assert found.server_cpu_s > 0
        found = numbers(node.measure(target, "latency", "paced", rate=200, **FLOW))
        assert 0 < found.p50_ms <= found.p99_ms
        found = numbers(node.measure(target, "backlog", "old", producers=2, count=2_000, **FLOW))
        assert found.messages == 2_000


def test_the_others_go_on_beside_a_stuck_reader(packages: None, tmp_path: Path) -> None:
    with served(PUSHLANE, tmp_path) as target:
        found = node.measure(
            target, "stuck", "crowd", producers=1, consumers=5, rounds=1, clog=2_000, **FLOW
        )
        (only,) = json.loads(json.dumps(found["rounds"]))
        assert only["free"] > 0
        assert only["beside"] > 0


def test_idle_consumers_cost_memory(packages: None, tmp_path: Path) -> None:
    with served(PUSHLANE, tmp_path) as target:
        found = node.measure(target, "idle", "idle", count=100, before=10, settle_s=0.1, credit=1)
        assert 0 < found["kib"] < 200


def test_a_fault_of_the_load_generator_is_an_error(packages: None, tmp_path: Path) -> None:
    with (
        served(PUSHLANE, tmp_path) as target,
        pytest.raises(node.LoadFailed, match="bad_request"),
    ):
        node.measure(target, "throughput", "no such name!", producers=1, consumers=1, **FLOW)


@pytest.mark.parametrize("fault", [{"missing": 1}, {"again": 1}])
def test_a_lost_or_doubled_message_is_an_error(fault: dict[str, int]) -> None:
    with pytest.raises(node.LoadFailed, match="1"):
        numbers({"rate": 1.0, "messages": 10, **fault})


def test_the_lock_names_exact_versions_and_no_host() -> None:
    text = (node.FOLDER / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert "omit-lockfile-registry-resolved=true" in (node.FOLDER / ".npmrc").read_text()
    lock = json.loads(text)["packages"]
    wanted = json.loads((node.FOLDER / "package.json").read_text())["dependencies"]
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(entry.get("integrity") for path, entry in lock.items() if path)
