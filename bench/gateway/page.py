"""docs/benchmarks.md: the newest result goes between its two marks, the rest is written by hand."""

from __future__ import annotations

from pathlib import Path

from bench.gateway.result import Result
from bench.gateway.table import HEADS, load_line, rows, shape_line

BEGIN = "<!-- newest result: begin -->"
END = "<!-- newest result: end -->"


def update(path: Path, result: Result, picture: str, data: str) -> None:
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text(
        f"{before}{BEGIN}\n{newest(result, picture, data)}\n{END}{after}", encoding="utf-8"
    )


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
