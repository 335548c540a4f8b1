"""A result as a picture: throughput of all systems, and their latency at a slow pace."""

from __future__ import annotations

from pathlib import Path

from bench.gateway.result import Measured, Result, median

OURS, OTHERS, LIGHT = "#1f6feb", "#8b949e", "#c9d1d9"


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
