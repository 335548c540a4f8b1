"""A result as text, in two pages of the docs, and as a picture.

The newest result goes between two marks of docs/benchmarks.md, and in short of README.md. The rest
of both pages is written by hand. The picture shows the throughput of all systems, and their latency
at a slow pace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.gateway.result import Measured, Result, cpu_per_100k, median

HEADS = (
    "system", "msg/s 1×1", "4×4", "p50/p99 ms", "server CPU-s", "client CPU-s", "fsync"
)  # fmt: skip
BEGIN = "<!-- newest result: begin -->"
END = "<!-- newest result: end -->"
SHORT_BEGIN = "<!-- comparison: begin -->"
SHORT_END = "<!-- comparison: end -->"
SHORT = {0: "System", 1: "Messages/s", 3: "Latency p50 / p99, ms", 6: "fsync"}
"""Columns of the table that the README has."""
OURS, OTHERS, LIGHT = "#1f6feb", "#8b949e", "#c9d1d9"


def rows(result: Result) -> Iterator[tuple[str, ...]]:
    """Strings, one row a system that was measured; CPU-seconds are per 100,000 messages, 1×1."""
    for each in result.systems:
        if each.whole:
            yield _row(each)


def _row(each: Measured) -> tuple[str, ...]:
    return (
        each.label,
        f"{median(each.one, 'rate'):,.0f}",
        f"{median(each.four, 'rate'):,.0f}",
        f"{median(each.paced, 'p50_ms'):.2f} / {median(each.paced, 'p99_ms'):.2f}",
        f"{cpu_per_100k(each.one, 'server'):.2f}",
        f"{cpu_per_100k(each.one, 'client'):.2f}",
        "yes" if each.fsync else "no",
    )


def text(result: Result) -> str:
    lines = []
    found = list(rows(result))
    if found:
        widths = [max(map(len, column)) for column in zip(HEADS, *found, strict=True)]
        for row in (HEADS, *found):
            cells = [
                cell.ljust(width) if index == 0 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells))
        lines += ["CPU-seconds are per 100,000 messages, one producer and one consumer.", ""]
    for check in result.checks:
        verdict = "reached" if check.reached else "NOT REACHED"
        lines.append(f"{check.name:52s} {check.figure:>9s}  {verdict:11s}  ({check.target})")
    lines += ["", shape_line(result), load_line(result)]
    lines += [f"NOT MEASURED: {reason}" for reason in result.missing]
    lines += [f"FAILED: {reason}" for reason in result.failed]
    return "\n".join(lines)


def shape_line(result: Result) -> str:
    shape = result.machine.shape
    return (
        f"{shape.cores} cores, {shape.memory_gib} GiB, Linux {shape.kernel},"
        f" Python {shape.python}, Node {shape.node}"
    )


def load_line(result: Result) -> str:
    machine = result.machine
    before, after = (f"{each[0]:.1f}" for each in (machine.load_before, machine.load_after))
    return (
        f"load average {before} before and {after} after; {machine.busy:.0%} of all CPU time was"
        f" used, {machine.steal:.1%} stolen"
    )


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


def plot(result: Result, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")  # no display
    from matplotlib import pyplot

    systems = [each for each in result.systems if each.whole][::-1]
    labels = [each.label + ("" if each.fsync else " *") for each in systems]
    places = range(len(systems))
    figure, (rates, waits) = pyplot.subplots(1, 2, figsize=(12, 0.6 * len(systems) + 1.8))
    for offset, shape, label in ((0.2, "one", "1 × 1"), (-0.2, "four", "4 × 4")):
        values = [median(getattr(each, shape), "rate") / 1000 for each in systems]
        shades = [_shade(each, shape) for each in systems]
        drawn = rates.barh([at + offset for at in places], values, 0.38, color=shades)
        rates.bar_label(drawn, [f"{value:.1f}  ({label})" for value in values], padding=3)
    rates.set_yticks(list(places), labels)
    rates.set_title("thousand messages/s, publish to ack")
    rates.margins(x=0.3)
    for offset, name in ((0.2, "p50_ms"), (-0.2, "p99_ms")):
        values = [median(each.paced, name) for each in systems]
        shades = [_shade(each, "one" if name == "p50_ms" else "four") for each in systems]
        drawn = waits.barh([at + offset for at in places], values, 0.38, color=shades)
        waits.bar_label(drawn, [f"{value:.2f}  ({name[:3]})" for value in values], padding=3)
    waits.set_xscale("log")
    waits.set_yticks(list(places), [""] * len(systems))
    waits.set_title("ms from publish to delivery at 1,000 messages/s")
    waits.margins(x=0.3)
    figure.supxlabel("* acknowledges before the disk has it", fontsize=9)
    for axes in (rates, waits):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _shade(each: Measured, shape: str) -> str:
    if each.name == "pushlane":
        return OURS if shape == "one" else "#79b8ff"
    return OTHERS if shape == "one" else LIGHT
