"""What a real server recorded obeys all rules, also when it was killed; a bug in it shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pushlane_history.checker import check
from pushlane_history.event import Ended, Event, Leaving, Void
from tests.dispatcher.recording.served import make_node, recorded, run_load


def served(folder: Path, plant: str = "", **settings: int) -> list[Event]:
    """Some load, kill -9, and all of it again."""
    node = make_node(folder, plant, **settings)
    node.spawn()
    try:
        node.wait_until_ready()
        run_load(node.url, until=lambda acked: acked > 60)
        node.kill()
        node.spawn()
        node.wait_until_ready()
        run_load(node.url)
        assert node.terminate() == 0
    finally:
        node.close()
    return [*recorded(folder / "history")]


def test_a_clean_history(tmp_path: Path) -> None:
    history = served(tmp_path)
    report = check(history)
    assert report.ok, str(report)
    assert report.events["gap"] == 2
    assert report.events["crash"] == 2
    causes = Counter(event.cause for event in history if isinstance(event, Leaving))
    assert {"rejected", "max_attempts", "expired"} <= causes.keys()
    assert Counter(event.how for event in history if isinstance(event, Ended))["acked"] > 150
    assert any(isinstance(event, Void) and event.attempts == 1 for event in history)


def test_a_bug_of_the_server_is_found(tmp_path: Path) -> None:
    """Messages of one key don't wait for each other. The audit's tests have another one."""
    report = check(served(tmp_path, "keys-out-of-order"))
    assert "key_order" in report.broken
    assert all(violation.evidence for violation in report.violations)


def test_a_history_that_was_cut_short_and_has_gaps(tmp_path: Path) -> None:
    """Tiny files and a tiny buffer: most of it is lost, and nobody is accused of it."""
    history = served(tmp_path, file_bytes=40_000, files=3, events=10)
    report = check(history)
    assert report.ok, str(report)
    assert report.events["gap"] >= 2
    assert "the history has a gap" in (tmp_path / "server.log").read_text()
    assert len(list((tmp_path / "history").glob("*.jsonl"))) <= 4
