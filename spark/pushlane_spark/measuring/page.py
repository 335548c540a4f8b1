"""The page of a report: one file that asks for nothing else, and needs no script."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from pushlane_spark.measuring import human
from pushlane_spark.measuring.anomalies import MEASURES, Anomaly, spells_of
from pushlane_spark.measuring.plots import DPI, Plot
from pushlane_spark.measuring.series import (
    BACKLOG,
    OLDEST,
    causes_of,
    dead_of,
    dead_rate,
    latency,
    retry_rate,
    skew,
)
from pushlane_spark.measuring.view import Place, View
from pushlane_spark.period import time_of
from pushlane_spark.usage_frames import HOUR

MOST_QUEUES = 50
"""Rows of a table: the busiest."""
MOST_ANOMALIES = 50
MOST_KEYS = 20
_SECTIONS: Sequence[tuple[str, Sequence[str]]] = (
    ("Throughput", ("throughput", "traffic", "failures")),
    ("Latency", ("delivery-latency", "publish-latency", "ack-latency")),
    ("Backlog", ("backlog", "oldest")),
    ("Keys, shards and sizes", ("keys", "shards", "sizes", "states")),
)
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_NONE = "–"


def make_page(view: View, plots: Iterable[Plot]) -> str:
    named = {plot.name: plot for plot in plots}
    title = "Pushlane metrics" + ("" if view.tenant is None else f" of {view.tenant}")
    sections = [_section(head, [named[name] for name in names]) for head, names in _SECTIONS]
    parts = [_header(title, view), _tiles(view), _anomalies(view), *sections]
    parts += [_queues(view), _keys(view), _stored(view), _causes(view)]
    style = files(__package__).joinpath("page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, parts))
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(title: str, view: View) -> str:
    first, end = time_of(view.period.first), time_of(view.period.end)
    whose = "all tenants" if view.tenant is None else f"tenant {view.tenant}"
    length = human.duration(60_000 * (view.period.end - view.period.first))
    period = f"{first:%a %d %b %Y, %H:%M} – {end:%a %d %b %Y, %H:%M} UTC"
    step = human.duration(60_000 * view.step)
    return (
        f"<header><h1>{escape(title)}</h1>\n<p>{period} · {length} · {escape(whose)} ·"
        f" {len(view.queues):,} queues · windows of {step}</p></header>"
    )


def _tiles(view: View) -> str:
    total = view.total
    seconds = 60 * (view.period.end - view.period.first)
    published = total.get("published", 0)
    backlog = max((moment.counters.get(BACKLOG, 0) for moment in view.moments), default=0)
    connected = total.get("connection_ms", 0)
    tiles = [
        ("Published", human.count(published), f"{human.count(published / seconds)}/s on average"),
        ("Delivered", human.count(total.get("delivered", 0)), "with those tried again"),
        ("Acknowledged", human.count(total.get("acked", 0)), ""),
        ("Dead letters", human.count(dead_of(total)), _rate(dead_rate(total), "of what ended")),
        (
            "Retries",
            human.count(total.get("retried", 0)),
            _rate(retry_rate(total), "of deliveries"),
        ),
        ("Delivery, p95", _time(latency(total, "delivery_ms", 0.95)), "publish to delivery"),
        ("Acknowledged, p95", _time(latency(total, "publish_ms", 0.95)), "publish to answer"),
        ("Highest backlog", human.count(backlog), "messages"),
        ("Oldest message", _time(total.get(OLDEST)), "that still waited"),
        ("Bytes in", human.size(total.get("bytes_in", 0)), ""),
        ("Bytes out", human.size(total.get("bytes_out", 0)), ""),
        ("Connected", _time(connected or None), "of all connections"),
    ]
    cells = (
        f"<div class=tile><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(note)}"
        "</small></div>"
        for name, value, note in tiles
    )
    return '<section class="tiles">\n' + "\n".join(cells) + "\n</section>"


def _rate(share: float | None, of: str) -> str:
    return "" if share is None else f"{human.percent(share)} {of}"


def _time(ms: float | None) -> str:
    return _NONE if ms is None else human.duration(ms)


def _anomalies(view: View) -> str:
    spells = spells_of(view.anomalies)
    shown = spells[:MOST_ANOMALIES]
    if not shown:
        text = "<p>No hour was unlike the same hour of earlier weeks.</p>"
        return f"<section><h2>Anomalies</h2>{text}</section>"
    items = "\n".join(f"<li>{_spell(view, spell)}</li>" for spell in shown)
    left = len(spells) - len(shown)
    more = f"<p>{left:,} lesser ones are not shown.</p>" if left else ""
    return f"<section><h2>Anomalies</h2>\n<ul class=anomalies>\n{items}\n</ul>{more}</section>"


def _spell(view: View, spell: Sequence[Anomaly]) -> str:
    worst = max(spell, key=lambda anomaly: anomaly.score)
    unit = human.duration if worst.measure.endswith("_ms") else human.count
    queue = escape(view.name((worst.tenant, worst.queue)))
    word = "high" if worst.value > worst.high else "low"
    first, end = time_of(spell[0].hour), time_of(spell[-1].hour + HOUR)
    until = f"{end:%H:%M}" if len(spell) < 24 else f"{end:%a %d %b, %H:%M}"
    extreme = "" if len(spell) == 1 else "up to " if word == "high" else "down to "
    return (
        f'<span class="badge {word}">{word}</span> <b>{queue}</b>'
        f" {first:%a %d %b, %H:%M} – {until}:"
        f" {escape(MEASURES[worst.measure].title)} {extreme}<b>{unit(worst.value)}</b>,"
        f" expected {unit(worst.expected)} ({unit(worst.low)} to {unit(worst.high)},"
        f" from {worst.weeks} earlier weeks)"
    )


def _section(head: str, plots: Sequence[Plot]) -> str:
    figures = "\n".join(map(_figure, plots))
    return f'<section><h2>{escape(head)}</h2>\n<div class="plots">\n{figures}\n</div></section>'


def _figure(plot: Plot) -> str:
    kind = "plot wide" if plot.wide else "plot"
    head = f"<h3>{escape(plot.title)}</h3><p>{escape(plot.about)}</p>"
    if plot.png is None:
        return f'<figure class="{kind} empty">{head}</figure>'
    width, height = (int.from_bytes(plot.png[at : at + 4]) * 96 // DPI for at in (16, 20))
    data = base64.b64encode(plot.png).decode()
    return (
        f'<figure class="{kind}">{head}<img alt="{escape(plot.title)}" width="{width}"'
        f' height="{height}" src="data:image/png;base64,{data}"></figure>'
    )


def _queues(view: View) -> str:
    busiest = sorted(view.queues, key=lambda place: (-_busy(view, place), place))
    heads = ("Published", "Delivered", "Acked", "Dead", "Retries", "Delivery p95", "Ack p95")
    rows = [[view.name(place), *_queue(view, place)] for place in busiest[:MOST_QUEUES]]
    table = _table(["Queue", *heads, "Backlog", "Oldest", "Skew"], rows)
    left = len(busiest) - len(rows)
    more = f"<p>{left:,} queues with less are not shown.</p>" if left > 0 else ""
    return f"<section><h2>Queues</h2>\n{table}{more}</section>"


def _busy(view: View, place: Place) -> int:
    counters = view.queues[place]
    return counters.get("published", 0) + counters.get("delivered", 0)


def _queue(view: View, place: Place) -> list[str]:
    counters = view.queues[place]
    factor, retries = skew(view.shards.get(place, {})), retry_rate(counters)
    return [
        *(human.count(counters.get(name, 0)) for name in ("published", "delivered", "acked")),
        human.count(dead_of(counters)),
        _NONE if retries is None else human.percent(retries),
        _time(latency(counters, "delivery_ms", 0.95)),
        _time(latency(counters, "ack_ms", 0.95)),
        human.count(counters.get(BACKLOG, 0)),
        _time(counters.get(OLDEST)),
        _NONE if factor is None else f"{factor:.2g}×",
    ]


def _keys(view: View) -> str:
    totals = {place: sum(states.values()) for place, states in view.states.items()}
    found = sorted(view.keys, key=lambda hot: (-hot.messages, hot.tenant, hot.queue, hot.key))
    rows = []
    for hot in found[:MOST_KEYS]:
        place = hot.tenant, hot.queue
        part = human.percent(hot.messages / max(totals.get(place, 0), hot.messages))
        rows.append(
            [hot.key, view.name(place), human.count(hot.messages), part, human.size(hot.bytes)]
        )
    if not rows:
        return ""
    table = _table(["Key", "Queue", "Messages", "Share", "Size"], rows, texts=2)
    return f"<section><h2>Hot keys</h2>\n{table}</section>"


def _stored(view: View) -> str:
    names = sorted({state for states in view.states.values() for state in states})
    places = sorted(view.states, key=lambda place: (-view.bytes[place], place))[:MOST_QUEUES]
    rows = [
        [
            view.name(place),
            *(human.count(view.states[place].get(name, 0)) for name in names),
            human.size(view.bytes[place]),
        ]
        for place in places
    ]
    table = _table(["Queue", *(name.capitalize() for name in names), "Size"], rows)
    damaged = f"<p>{view.damaged:,} messages are damaged.</p>" if view.damaged else ""
    about = "<p>Messages of the period that are in the store or in the archive, by state.</p>"
    nothing = "<p>No message of the period is in the store or in the archive.</p>"
    found = about + table if rows else nothing
    return f"<section><h2>Stored messages</h2>\n{found}{damaged}</section>"


def _causes(view: View) -> str:
    found = causes_of(view.total)
    if not found:
        return "<section><h2>Ended without an ack</h2><p>No message did.</p></section>"
    ordered = sorted(found.items(), key=lambda cause: (-cause[1], cause[0]))
    rows = [[name.replace("_", " "), human.count(n)] for name, n in ordered]
    return (
        f"<section><h2>Ended without an ack</h2>\n{_table(['Cause', 'Messages'], rows)}</section>"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """The first columns are texts, the others numbers."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = []
    for row in rows:
        names = "".join(f"<th scope=row>{escape(text)}</th>" for text in row[:texts])
        cells = "".join(f"<td>{escape(text)}</td>" for text in row[texts:])
        lines.append(f"<tr>{names}{cells}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="table texts-{texts}"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
