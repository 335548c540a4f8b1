"""The plots of a report, as PNG. One that would be empty is a sentence instead."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pushlane_spark.measuring import human
from pushlane_spark.measuring.series import (
    BACKLOG,
    LATENCIES,
    OLDEST,
    dead_rate,
    latency,
    retry_rate,
    skew,
)
from pushlane_spark.measuring.view import Moment, View
from pushlane_spark.period import time_of
from pushlane_storage.usage import bounds_of

DPI = 144
WIDE, HALF = (11.2, 2.9), (5.5, 2.9)
"""Inches."""
BARS = 8
"""Rows of a plot with bars, at most."""
LEAST_BARS = 4
NAME_CHARACTERS = 26
PERCENTILES = {0.5: "p50", 0.95: "p95", 0.99: "p99"}

BLUE, GREEN, ORANGE, RED, GREY = "#2563eb", "#059669", "#d97706", "#dc2626", "#94a3b8"
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#cbd5e1",
    "axes.grid": True,
    "axes.labelcolor": "#475569",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#e2e8f0",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "xtick.color": "#475569",
    "ytick.color": "#475569",
}


class Plot(NamedTuple):
    name: str
    """Of its file, without `.png`."""
    title: str
    about: str
    wide: bool
    png: bytes | None
    """None: there is nothing to draw, and `about` says so."""


class Unit(NamedTuple):
    """How the values of an axis are written, and in what steps."""

    label: str
    shown: Callable[[float], str]
    unit: Callable[[float], float]
    """In which values up to the given one are round."""


COUNT = Unit("messages", human.count, human.count_unit)
RATE = COUNT._replace(label="messages/s")
BYTE_RATE = Unit("bytes/s", human.size, human.size_unit)
DURATION = Unit("duration", human.duration, human.duration_unit)
SHARE = Unit("share", human.percent, lambda _: 0.01)


class Line(NamedTuple):
    label: str
    colour: str
    of: Callable[[Moment], float | None]
    filled: bool = False


def draw(view: View) -> list[Plot]:
    """All of them, in the order of the page."""
    return [
        _throughput(view),
        _latency(view, "delivery_ms", WIDE),
        _latency(view, "publish_ms", HALF),
        _latency(view, "ack_ms", HALF),
        _traffic(view),
        _failures(view),
        _backlog(view),
        _oldest(view),
        _shards(view),
        _keys(view),
        _sizes(view),
        _states(view),
    ]


def _per_second(name: str) -> Callable[[Moment], float | None]:
    return lambda moment: moment.counters.get(name, 0) / (60 * moment.minutes)


def _throughput(view: View) -> Plot:
    lines = [
        Line("published", BLUE, _per_second("published"), filled=True),
        Line("delivered", ORANGE, _per_second("delivered")),
        Line("acknowledged", GREEN, _per_second("acked")),
    ]
    about = f"Messages a second, averages of {human.duration(60_000 * view.step)}."
    return _over_time(view, "throughput", "Throughput", about, RATE, lines, WIDE)


def _latency(view: View, histogram: str, size: tuple[float, float]) -> Plot:
    def part(of: float) -> Callable[[Moment], float | None]:
        return lambda moment: latency(moment.counters, histogram, of)

    colours = (GREEN, BLUE, RED)
    lines = [
        Line(name, colour, part(of))
        for (of, name), colour in zip(PERCENTILES.items(), colours, strict=True)
    ]
    about = "Percentiles, on a logarithmic axis."
    name = histogram.replace("_ms", "-latency")
    title = LATENCIES[histogram]
    return _over_time(view, name, title, about, DURATION, lines, size, log=True)


def _traffic(view: View) -> Plot:
    lines = [
        Line("in", BLUE, _per_second("bytes_in")),
        Line("out", ORANGE, _per_second("bytes_out")),
    ]
    about = "Bytes a second, in from publishers and out to consumers."
    return _over_time(view, "traffic", "Traffic", about, BYTE_RATE, lines, HALF)


def _failures(view: View) -> Plot:
    lines = [
        Line("retries", ORANGE, lambda moment: retry_rate(moment.counters)),
        Line("dead letters", RED, lambda moment: dead_rate(moment.counters)),
    ]
    about = "Retries as a share of deliveries, dead letters of messages that ended."
    title = "Retries and dead letters"
    return _over_time(view, "failures", title, about, SHARE, lines, HALF)


def _backlog(view: View) -> Plot:
    lines = [Line("backlog", BLUE, lambda moment: moment.counters.get(BACKLOG), filled=True)]
    about = "Messages waiting or in flight: the highest of each queue, added up."
    return _over_time(view, "backlog", "Backlog", about, COUNT, lines, HALF)


def _oldest(view: View) -> Plot:
    lines = [Line("oldest", RED, lambda moment: moment.counters.get(OLDEST), filled=True)]
    about = "How long the oldest message of any queue had waited."
    title = "Age of the oldest message"
    return _over_time(view, "oldest", title, about, DURATION, lines, HALF)


def _over_time(
    view: View,
    name: str,
    title: str,
    about: str,
    unit: Unit,
    lines: Sequence[Line],
    size: tuple[float, float],
    *,
    log: bool = False,
) -> Plot:
    found = {line: [line.of(moment) for moment in view.moments] for line in lines}
    if not any(value for values in found.values() for value in values):
        return _nothing(name, title, size)
    times = [time_of(moment.window) for moment in view.moments]
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(size)
        for line, values in found.items():
            heights = [float("nan") if value is None else value for value in values]
            single = sum(value is not None for value in values) == 1
            axes.plot(times, heights, color=line.colour, label=line.label, marker="o" * single)  # type: ignore[arg-type]
            if line.filled:
                axes.fill_between(times, heights, color=line.colour, alpha=0.12, linewidth=0)  # type: ignore[arg-type]
        _time_axis(axes, view)
        _value_axis(axes, unit, log=log)
        if len(lines) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(lines), borderpad=0)
        return Plot(name, title, about, size == WIDE, _png(figure))


def _time_axis(axes: Axes, view: View) -> None:
    axes.set_xlim(time_of(view.period.first), time_of(view.period.end))  # type: ignore[arg-type]
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")


def _value_axis(axes: Axes, unit: Unit, *, log: bool) -> None:
    axes.set_ylabel(unit.label)
    if log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < 10 * low:  # or the axis may have no tick at all
            axes.set_ylim(low / 3, high * 3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=9))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
        highest = axes.get_ylim()[1]
        round_unit = unit.unit(highest)
        ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(0, highest / round_unit)
        axes.set_yticks([tick * round_unit for tick in ticks if tick * round_unit <= highest])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit.shown(value)))


def _shards(view: View) -> Plot:
    found = [(view.name(place), skew(shards)) for place, shards in view.shards.items()]
    rows = sorted((-factor, name) for name, factor in found if factor is not None)
    bars = [(name, -factor) for factor, name in rows[:BARS]]
    title = "Skew between shards"
    if not bars:
        reason = "No queue with more than one shard was published to."
        return _nothing("shards", title, HALF, reason)
    about = "What the busiest shard of a queue got, in times of an even share: 1 is even."
    return _bars("shards", title, about, bars, "times an even share", lambda value: f"{value:.2g}×")


def _keys(view: View) -> Plot:
    totals = {place: sum(states.values()) for place, states in view.states.items()}
    found = [
        (f"{hot.key} · {view.name((hot.tenant, hot.queue))}", hot.messages / total)
        for hot in view.keys
        if (total := totals.get((hot.tenant, hot.queue), 0))
    ]
    bars = sorted(found, key=lambda bar: (-bar[1], bar[0]))[:BARS]
    if not bars:
        return _nothing("keys", "Hot keys", HALF, "No stored message of the period has a key.")
    about = "The share of a queue's stored messages that one key has."
    return _bars("keys", "Hot keys", about, bars, "share of the queue", human.percent)


def _bars(
    name: str,
    title: str,
    about: str,
    bars: Sequence[tuple[str, float]],
    label: str,
    unit: Callable[[float], str],
) -> Plot:
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(HALF)
        names = [_short(text) for text, _ in bars]
        drawn = axes.barh(range(len(bars)), [value for _, value in bars], color=BLUE, height=0.62)
        axes.bar_label(drawn, [unit(value) for _, value in bars], padding=4, color="#475569")
        axes.set_yticks(range(len(bars)), names)
        axes.set_ylim(max(len(bars), LEAST_BARS) - 0.5, -0.5)  # or a single one would be a block
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.16)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
        axes.set_xlabel(label)
        return Plot(name, title, about, wide=False, png=_png(figure))


def _sizes(view: View) -> Plot:
    title = "Sizes of stored messages"
    total = sum(view.sizes.values())
    if not total:
        return _nothing("sizes", title, HALF, "No message of the period is stored.")
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(HALF)
        for number, n in sorted(view.sizes.items()):
            low, high = bounds_of(number)
            width = high - low
            axes.bar(low, n / total, width=width, align="edge", color=BLUE, edgecolor="white")
        axes.set_xscale("log", base=2)
        left, right = axes.get_xlim()
        if right < 16 * left:
            axes.set_xlim(left / 4, right * 4)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human.size(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human.percent(value)))
        axes.set_xlabel("size, with what is kept beside the body")
        axes.set_ylabel("share of messages")
        return Plot("sizes", title, "Of all that is stored or archived.", False, _png(figure))


def _states(view: View) -> Plot:
    title = "States of stored messages"
    found: dict[str, int] = {}
    for states in view.states.values():
        for state, n in states.items():
            found[state] = found.get(state, 0) + n
    if not found:
        return _nothing("states", title, HALF, "No message of the period is stored.")
    bars = sorted(found.items(), key=lambda bar: (-bar[1], bar[0]))[:BARS]
    about = "Of messages that were published in the period and are stored or archived."
    return _bars("states", title, about, bars, "messages", human.count)


def _nothing(
    name: str,
    title: str,
    size: tuple[float, float],
    reason: str = "Nothing was counted in this period.",
) -> Plot:
    return Plot(name, title, reason, size == WIDE, None)


def _short(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS else text[: NAME_CHARACTERS - 1] + "…"


def _figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _png(figure: Figure) -> bytes:
    found = io.BytesIO()
    figure.savefig(found, format="png", metadata={"Software": None})
    return found.getvalue()
