"""A whole run with made-up systems: who is measured, who is left out, and what is kept where."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import msgspec
import pytest

from bench.gateway import __main__ as bench
from bench.gateway import node
from bench.gateway.plan import QUICK, Plan
from bench.gateway.process import DidNotStart
from bench.gateway.result import Measured, Own, Result
from bench.gateway.systems import NATS, PUSHLANE, RABBIT, System
from tests.bench.results import flow, paced
from tests.repo import ROOT


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Exception]:
    """Who is there measures well; who is in the dict fails."""
    faults: dict[str, Exception] = {}

    def compare(system: System, measured: Measured, plan: Plan, place: Path) -> None:
        if system.name in faults:
            raise faults[system.name]
        measured.one.append(flow(50_000))
        measured.four.append(flow(60_000))
        measured.paced.append(paced(1.0, 2.0))

    def idle(own: Own, plan: Plan, place: Path) -> None:
        if "idle" in faults:
            raise faults["idle"]

    there = [dataclasses.replace(each, missing=lambda: None) for each in (NATS, RABBIT)]
    gone = System("redis", "Redis", True, NATS.start, lambda: "redis-server")
    monkeypatch.setattr(bench, "SYSTEMS", [PUSHLANE, *there, gone])
    monkeypatch.setattr(bench, "OWN", {"idle": idle})
    monkeypatch.setattr(bench, "compare", compare)
    monkeypatch.setattr(bench, "SPARE", tmp_path / "spare")
    monkeypatch.setattr(bench, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    (tmp_path / "docs" / "benchmarks.md").write_text(page)
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    monkeypatch.setattr(node, "missing", lambda: None)
    monkeypatch.setattr(node, "install", lambda: None)
    monkeypatch.chdir(tmp_path)
    return faults


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.gateway", *args])
    bench.main()


def kept(folder: Path) -> Result:
    return msgspec.json.decode((folder / "benchmarks.json").read_bytes(), type=Result)


def test_a_whole_run_is_kept_in_the_docs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch)
    result = kept(tmp_path / "docs")
    assert [(each.name, len(each.one)) for each in result.systems] == [
        ("pushlane", 3), ("nats", 3), ("rabbitmq", 3),
    ]  # fmt: skip
    assert result.missing == ["Redis: there is no redis-server"]
    assert "Not measured: Redis" in (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| Pushlane | 50,000 | 1.00 / 2.00 | yes |" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "docs" / "benchmarks.png").exists()
    assert "WITHOUT Redis: there is no redis-server" in capsys.readouterr().out
    assert list((tmp_path / "spare").iterdir()) == []


@pytest.mark.parametrize("args", [["--quick"], ["--only", "pushlane", "idle"]])
def test_a_part_of_a_run_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str]
) -> None:
    before = (tmp_path / "docs" / "benchmarks.md").read_text()
    run(monkeypatch, *args)
    assert (tmp_path / "docs" / "benchmarks.md").read_text() == before
    assert not (tmp_path / "docs" / "benchmarks.json").exists()
    assert kept(tmp_path / "spare").quick is (args == ["--quick"])


def test_only_what_is_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, "--only", "nats")
    result = kept(tmp_path / "spare")
    assert [each.name for each in result.systems] == ["nats"]
    assert result.missing == []
    assert result.checks == []


def test_a_peer_that_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: dict[str, Exception]
) -> None:
    world["rabbitmq"] = DidNotStart("no disk")
    run(monkeypatch)
    result = kept(tmp_path / "docs")
    assert sum("it failed" in reason for reason in result.missing) == 3
    assert not [each for each in result.checks if "RabbitMQ" in each.name]


@pytest.mark.parametrize("what", ["pushlane", "idle"])
def test_a_fault_of_ours_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: dict[str, Exception], what: str
) -> None:
    world[what] = node.LoadFailed("1 messages are missing, 0 came twice")
    with pytest.raises(SystemExit, match="it failed"):
        run(monkeypatch)
    assert not (tmp_path / "docs" / "benchmarks.json").exists()
    assert kept(tmp_path / "spare").failed


def test_without_node_nothing_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "missing", lambda: "node")
    with pytest.raises(SystemExit, match="needs node"):
        run(monkeypatch)


def test_systems_take_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = msgspec.structs.replace(QUICK, rounds=2)
    bench.run(plan, ["pushlane", "nats"], tmp_path)
    said = [line for line in capsys.readouterr().out.splitlines() if "round" in line]
    assert [line.split(",")[0] for line in said] == ["… Pushlane", f"… {NATS.label}"] * 2
