"""The result as text, as a page and as a picture."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.gateway.judge import judge
from bench.gateway.result import Result
from bench.gateway.showing import BEGIN, END, comparison, plot, text, update
from tests.bench.results import made
from tests.repo import ROOT


def judged() -> Result:
    result = made({"pushlane": 60_000, "nats": 10_000, "rabbitmq": 7_000})
    result.checks = judge(result)
    return result


def test_the_table_has_every_system_and_verdict() -> None:
    shown = text(judged())
    for part in ("60,000", "10,000", "1.25 / 4.50", "reached", "NOT REACHED", "8.6", "≥ 10"):
        assert part in shown
    assert "load average 0.5 before and 1.5 after; 75% of all CPU time" in shown


def test_what_was_not_measured_is_said() -> None:
    result = judged()
    result.missing.append("Redis: there is no redis-server")
    result.failed.append("idle: it failed")
    assert "NOT MEASURED: Redis: there is no redis-server" in text(result)
    assert "FAILED: idle: it failed" in text(result)


def test_a_page_keeps_what_is_written_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{BEGIN}\nold\n{END}\n\nbelow\n")
    for _ in range(2):
        update(page, judged(), "picture.png", "data.json")
        written = page.read_text()
        assert written.startswith(f"above\n\n{BEGIN}\n2026-11-16, commit `0123456789`; 2 cores")
        assert written.endswith(f"{END}\n\nbelow\n")
        assert "old" not in written
        assert "| Pushlane | 60,000 |" in written
        assert "**not reached**" in written
        assert "(picture.png)" in written
        assert "(data.json)" in written


def test_a_page_without_its_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("by hand\n")
    with pytest.raises(ValueError, match="unpack"):
        update(page, judged(), "picture.png", "data.json")
    assert page.read_text() == "by hand\n"


def test_our_page_has_its_marks() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert page.index(BEGIN) < page.index(END)


def test_the_readme_compares_what_the_newest_result_has() -> None:
    data = (ROOT / "docs" / "benchmarks.json").read_bytes()
    assert comparison(msgspec.json.decode(data, type=Result)) in (ROOT / "README.md").read_text()


def test_a_plot_is_a_png(tmp_path: Path) -> None:
    plot(judged(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n")
