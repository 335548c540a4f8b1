"""The newest result goes between two marks of docs/benchmarks.md, and in short of README.md.

The rest of both pages is written by hand.
"""

from __future__ import annotations

from pathlib import Path

from bench.gateway.result import Result
from bench.gateway.table import HEADS, load_line, rows, shape_line

BEGIN = "<!-- newest result: begin -->"
END = "<!-- newest result: end -->"
SHORT_BEGIN = "<!-- comparison: begin -->"
SHORT_END = "<!-- comparison: end -->"
SHORT = {0: "System", 1: "Messages/s", 3: "Latency p50 / p99, ms", 6: "fsync"}
"""Columns of the table that the README has."""


def update(path: Path, result: Result, picture: str, data: str) -> None:
    _put(path, BEGIN, newest(result, picture, data), END)


def update_short(path: Path, result: Result) -> None:
    _put(path, SHORT_BEGIN, comparison(result), SHORT_END)


def _put(path: Path, begin: str, text: str, end: str) -> None:
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def comparison(result: Result) -> str:
    """Only what was measured, side by side, in one run."""
    found = [tuple(row[index] for index in SHORT) for row in rows(result)]
    where = f"Measured on {result.date}, commit `{result.commit}`, on {shape_line(result)}."
    return "\n".join([*_table(tuple(SHORT.values()), found), "", where])


def newest(result: Result, picture: str, data: str) -> str:
    lines = [
        f"{result.date}, commit `{result.commit}`; {shape_line(result)}; {load_line(result)}.",
        f"[Every round]({data}).",
        "",
        *_table(HEADS, list(rows(result))),
        "",
        f"![Throughput and latency of the systems above]({picture})",
        "",
        *_table(
            ("figure", "value", "target", ""),
            [
                (check.name, check.figure, check.target, _verdict(check.reached))
                for check in result.checks
            ],
        ),
    ]
    lines += [f"\nNot measured: {reason}." for reason in result.missing]
    return "\n".join(lines)


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def _table(heads: tuple[str, ...], found: list[tuple[str, ...]]) -> list[str]:
    lines = [_line(heads), _line(("---",) * len(heads))]
    return lines + [_line(row) for row in found]


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
