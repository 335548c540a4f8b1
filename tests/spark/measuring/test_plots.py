"""Plots: all of them are drawn from data, and none without."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from PIL import Image

from pushlane_spark.measuring.plots import Plot, draw
from tests.spark.measuring.views import empty_view, view_of

NAMES = [
    "throughput",
    "delivery-latency",
    "publish-latency",
    "ack-latency",
    "traffic",
    "failures",
    "backlog",
    "oldest",
    "shards",
    "keys",
    "sizes",
    "states",
]


@pytest.fixture(scope="module")
def plots() -> list[Plot]:
    return draw(view_of(None))


def colours_of(png: bytes) -> int:
    with Image.open(io.BytesIO(png)) as image:
        assert image.width > 700
        assert image.height > 400
        found = image.convert("RGB").getcolors(1 << 20)
    assert found is not None
    return len(found)


def drawn(plots: Iterable[Plot]) -> list[str]:
    return [plot.name for plot in plots if plot.png is not None]


def test_all_are_drawn(plots: list[Plot]) -> None:
    assert drawn(plots) == NAMES
    for plot in plots:
        assert plot.png is not None
        assert colours_of(plot.png) > 50, plot.name


def test_the_same_data_gives_the_same_bytes(plots: list[Plot]) -> None:
    assert draw(view_of(None)) == plots


def test_without_data_there_is_a_sentence() -> None:
    for plot in draw(empty_view()):
        assert plot.png is None
        assert plot.about.startswith("No")
        assert plot.about.endswith(".")


def test_what_a_tenant_has_no_data_of_is_not_drawn() -> None:
    assert drawn(draw(view_of("bob"))) == ["throughput", "keys", "sizes", "states"]
