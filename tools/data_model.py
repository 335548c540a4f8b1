"""The picture of the data model on docs/cassandra.md, with keys out of the tables themselves.

python tools/data_model.py [--write [FILE]]
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from pushlane_storage.cassandra.ring import Table
from pushlane_storage.cassandra.tables import (
    BUCKETS,
    HEARTBEATS,
    LANES,
    NODES,
    QUEUES,
    SCHEDULED,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    SKIPS,
    SLICES,
    SLOTS,
)

PICTURE = Path(__file__).parents[1] / "docs" / "cassandra.svg"
WIDTH, HEIGHT = 1000, 790

STYLE = """
:root { --ink: #1f2328; --dim: #59636e; --page: #ffffff; --frame: #d1d9e0; --area: #f6f8fa;
  --card: #ffffff; --blue: #0969da; --wash: #ddf4ff; --amber: #9a6700; --sand: #fff8c5;
  --red: #cf222e; --gone: #eaeef2; }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --dim: #9198a1; --page: #0d1117;
  --frame: #3d444d; --area: #151b23; --card: #0d1117; --blue: #4493f8; --wash: #121d2f;
  --amber: #d29922; --sand: #272115; --red: #f85149; --gone: #212830; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--ink); }
.name, .key { font-family: ui-monospace, SFMono-Regular, Menlo, monospace; }
.name { font-size: 14px; font-weight: 600; } .key { font-size: 12px; }
.head { font-weight: 600; } .dim { fill: var(--dim); font-size: 12px; } .red { fill: var(--red); }
.page { fill: var(--page); } .frame { fill: var(--area); stroke: var(--frame); }
.plain { fill: var(--card); stroke: var(--blue); } .lwt { fill: var(--sand); stroke: var(--amber); }
.row { fill: var(--wash); stroke: var(--blue); } .zoom { fill: none; stroke: var(--blue); }
.gone { fill: var(--gone); stroke: var(--dim); stroke-dasharray: 4 3; }
.way { fill: none; stroke: var(--dim); marker-end: url(#tip); } .tip { fill: var(--dim); }
.seal { stroke: var(--red); stroke-width: 2.5; } .mid { text-anchor: middle; }
.guide { fill: none; stroke: var(--blue); stroke-dasharray: 3 3; }
"""


class Picture:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def box(self, kind: str, x: int, y: int, width: int, height: int) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )

    def text(self, kind: str, x: int, y: int, words: str) -> None:
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>')

    def title(self, x: int, y: int, *runs: tuple[str, str]) -> None:
        """Words of several kinds in one line."""
        words = "".join(f'<tspan class="{kind}">{escape(text)}</tspan>  ' for kind, text in runs)
        self.parts.append(f'<text xml:space="preserve" x="{x}" y="{y}">{words}</text>')

    def line(self, kind: str, path: str) -> None:
        self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def card(self, table: Table, x: int, y: int, width: int, *lines: str) -> None:
        """A table: its name, its key (partition · clustering), and what its rows say."""
        self.box("lwt" if table.lightweight else "plain", x, y, width, 52 + 17 * len(lines))
        self.text("name", x + 12, y + 22, table.name)
        self.text("key", x + 12, y + 41, key_of(table))
        for number, words in enumerate(lines):
            self.text("dim", x + 12, y + 60 + 17 * number, words)

    def svg(self) -> str:
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' role="img" aria-labelledby="title about">\n'
            '<title id="title">The data model of the replicated store</title>\n'
            '<desc id="about">Queues have shards, which hash to slots that processes own. A shard'
            " has lanes, a lane has buckets in the order of time, and a bucket is one partition of"
            " segments and one of settlements. A seal ends what an older owner wrote.</desc>\n"
            f"<style>{STYLE}</style>\n"
            '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4"'
            ' orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>\n'
            f"{body}\n</svg>\n"
        )


def key_of(table: Table) -> str:
    partition, clustering = ", ".join(table.partition), ", ".join(table.clustering)
    return f"({partition}) · {clustering}" if clustering else f"({partition})"


def draw() -> str:
    picture = Picture()
    picture.box("page", 0, 0, WIDTH, HEIGHT)
    _owners(picture)
    _shard(picture)
    _lane(picture)
    _bucket(picture)
    _legend(picture)
    return picture.svg()


def _owners(p: Picture) -> None:
    p.card(QUEUES, 20, 20, 270, "id (new with each creation),", "configuration, version")
    p.card(
        SLOTS, 365, 20, 270, "epoch: one more with each owner;", "256 rows, each has one process"
    )
    p.card(NODES, 710, 20, 270, "fenced: what it writes no longer", "counts")
    p.card(HEARTBEATS, 710, 122, 270)
    p.line("way", "M635 60 H706")
    p.text("dim mid", 670, 52, "owner")
    p.line("way", "M155 106 V186")
    p.text("dim", 163, 150, "has shards")
    p.line("way", "M500 192 V110")
    p.text("dim", 508, 150, "a shard hashes to a slot")


def _shard(p: Picture) -> None:
    p.box("frame", 20, 192, 960, 536)
    about = "queue_id, shard: it has an order of its own, and one owner at a time"
    p.title(36, 216, ("head", "A shard of a queue"), ("dim", about))
    p.card(LANES, 36, 232, 301, "which lanes there are")
    p.card(SEALS, 349, 232, 302, "where each older epoch ends")
    p.card(SLICES, 663, 232, 301, "which slices of the schedule there are")
    p.card(SCHEDULED, 36, 312, 456, "an index of what must wait: the message stands in its segment")
    p.card(SKIPS, 504, 312, 460, "behind this bucket, the next that may live is …")


def _lane(p: Picture) -> None:
    about = "the messages of one priority, in buckets by time; a row each in"
    name, key = ("name", BUCKETS.name), ("key", key_of(BUCKETS))
    p.title(36, 418, ("head", "A lane"), ("dim", about), name, key)
    for kind, x, words, state in (
        ("gone", 36, "epoch 4", "dropped"),
        ("gone", 196, "epoch 4", "dropped"),
        ("plain", 356, "epoch 5", "closed, drained"),
        ("row", 516, "epoch 5", "cut off by the change of owner"),
        ("plain", 756, "epoch 6", "open"),
    ):
        width = 228 if kind == "row" else 148 if x < 700 else 208
        p.box(kind, x, 432, width, 46)
        p.text("key mid", x + width // 2, 451, words)
        p.text("dim mid", x + width // 2, 469, state)
    p.line("way", "M40 500 C120 520 280 520 352 484")
    p.text("dim mid", 190, 530, "a skip leads around their tombstones")
    p.line("guide", "M516 478 V560 M744 478 V560")


def _bucket(p: Picture) -> None:
    p.box("zoom", 36, 560, 928, 156)
    about = "one partition in each of two tables, dropped as a whole; one row is one flush"
    p.title(50, 583, ("head", "A bucket"), ("dim", about))
    p.text("name", 50, 612, SEGMENTS.name)
    p.text("key", 50, 630, f"… · {SEGMENTS.clustering[0]}")
    for kind, x, width, words in (
        ("row", 160, 150, "seq 0 – 99"),
        ("row", 314, 70, "100"),
        ("row", 388, 190, "101 – 600"),
        ("gone", 640, 150, "701 – 800"),
    ):
        p.box(kind, x, 596, width, 38)
        p.text("key mid", x + width // 2, 620, words)
    p.text("name", 50, 672, SETTLEMENTS.name)
    p.text("key", 50, 690, f"… · {', '.join(SETTLEMENTS.clustering)}")
    for kind, x, width, words in (
        ("row", 160, 150, "5.0 acked 0 – 98"),
        ("row", 314, 156, "5.1 void of 99"),
        ("row", 474, 104, "6.0 acked 99"),
        ("gone", 640, 150, "5.2 acked 100"),
    ):
        p.box(kind, x, 656, width, 38)
        p.text("key mid", x + width // 2, 680, words)
    p.line("seal", "M608 590 V700")
    p.text("red head", 800, 612, "the seal of epoch 6")
    p.text("dim", 800, 630, "what landed beyond it,")
    p.text("dim", 800, 646, "or lands later, does not")
    p.text("dim", 800, 662, "exist")


def _legend(p: Picture) -> None:
    for kind, x, words in (
        ("plain", 20, "a table of plain writes"),
        ("lwt", 220, "a table of lightweight transactions"),
        ("row", 500, "a row of a partition"),
        ("gone", 680, "deleted, or never counted"),
    ):
        p.box(kind, x, 746, 26, 18)
        p.text("dim", x + 34, 760, words)


def main(args: list[str]) -> None:
    if not args or args[0] != "--write":
        print(draw(), end="")
        return
    (Path(args[1]) if len(args) > 1 else PICTURE).write_text(draw())


if __name__ == "__main__":
    main(sys.argv[1:])
