"""A result as text: the systems side by side, then the targets."""

from __future__ import annotations

from collections.abc import Iterator

from bench.gateway.result import Measured, Result, cpu_per_100k, median

HEADS = (
    "system", "msg/s 1×1", "4×4", "p50/p99 ms", "server CPU-s", "client CPU-s", "fsync"
)  # fmt: skip


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
