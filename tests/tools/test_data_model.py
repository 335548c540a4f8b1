"""The picture of the data model is that of the code, and the page shows it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from pushlane_storage.cassandra.tables import TABLES
from tests.repo import ROOT
from tools.data_model import HEIGHT, PICTURE, WIDTH, draw, key_of, main

SVG = "{http://www.w3.org/2000/svg}"


def words() -> set[str]:
    tree = ElementTree.fromstring(PICTURE.read_text())
    texts = [*tree.iter(f"{SVG}text"), *tree.iter(f"{SVG}tspan")]
    return {text.text for text in texts if text.text}


def test_it_is_up_to_date() -> None:
    assert PICTURE.read_text() == draw(), "run python tools/data_model.py --write"


def test_every_table_is_in_it_with_its_key() -> None:
    shown = words()
    for table in TABLES:
        assert table.name in shown
        assert key_of(table) in shown or f"… · {', '.join(table.clustering)}" in shown


def test_everything_is_inside() -> None:
    tree = ElementTree.fromstring(draw())
    boxes = list(tree.iter(f"{SVG}rect"))
    assert len(boxes) > 20
    for box in boxes:
        x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + width <= WIDTH
        assert y + height <= HEIGHT


def test_the_page_shows_it() -> None:
    assert f"]({PICTURE.name})" in (ROOT / "docs" / "cassandra.md").read_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert capsys.readouterr().out == draw()
    main(["--write", str(tmp_path / "picture.svg")])
    assert (tmp_path / "picture.svg").read_text() == draw()
