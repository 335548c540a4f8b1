"""The page: what stands on it, and that nothing can get in or out."""

from __future__ import annotations

import re

from pushlane_spark.measuring.page import make_page
from pushlane_spark.measuring.plots import Plot, draw
from tests.spark.measuring.views import empty_view, view_of


def page_of(tenant: str | None) -> str:
    view = view_of(tenant)
    return make_page(view, [plot._replace(png=None) for plot in draw(view)])


def texts(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_what_operators_read() -> None:
    page = texts(page_of(None))
    assert "Pushlane metrics" in page
    assert "Mon 08 Jun 2026, 00:00 – Mon 08 Jun 2026, 00:30 UTC · 30 min · all tenants" in page
    assert "Published 607 0.34/s on average" in page
    assert "Dead letters 3 0.51 % of what ended" in page
    assert "high bob/b Mon 08 Jun, 00:00 – 01:00: p95 of publish to delivery 9 s" in page
    assert "low ann/a&lt;b&gt;" in page
    assert "expected 900 (450 to 1.35 k, from 4 earlier weeks)" in page
    assert "k&amp;1 ann/a&lt;b&gt; 30 30 % 2.93 KiB" in page
    assert "3 messages are damaged." in page
    assert "rejected 3" in page


def test_what_a_tenant_reads() -> None:
    page = page_of("bob")
    assert "Pushlane metrics of bob" in page
    for others in ("ann", "a&lt;b&gt;", "k&amp;1"):
        assert others not in texts(page)


def test_nothing_is_asked_for_and_no_script_is_run() -> None:
    page = page_of(None)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
    assert not re.search(r"https?://|<script|<link|@import|url\(|href=", page)


def test_an_empty_page_says_so() -> None:
    view = empty_view()
    page = make_page(view, draw(view))
    assert "<img" not in page
    shown = texts(page)
    assert "Nothing was counted in this period." in shown
    assert "No hour was unlike the same hour of earlier weeks." in shown
    assert "No message of the period is in the store or in the archive." in shown


def test_pictures_say_their_size() -> None:
    view = view_of(None)
    plots = draw(view)
    found = re.findall(r'<img alt="([^"]+)" width="(\d+)" height="(\d+)"', make_page(view, plots))
    assert sorted(title for title, _, _ in found) == sorted(plot.title for plot in plots)
    assert {(int(width), int(height)) for _, width, height in found} == {(1074, 278), (528, 278)}
    assert all(isinstance(plot, Plot) for plot in plots)
