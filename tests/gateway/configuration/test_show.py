"""docs/configuration.md is what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.known import QUEUE_REASONS, field_reasons
from pushlane_gateway.configuration.load import load
from pushlane_gateway.configuration.show import render
from pushlane_gateway.configuration.sources import FLAGS
from tests.repo import ROOT
from tools.generated import main

PAGE = ROOT / "docs" / "configuration.md"


def test_the_page_is_current(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text())
    main(["keys", "--write", str(copy)])
    assert copy.read_text() == PAGE.read_text(), "run python -m tools.generated keys --write"


def test_the_tool_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys"])
    assert capsys.readouterr().out == render() + "\n"


def test_a_page_without_a_place_for_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(AssertionError, match="0 places"):
        main(["keys", "--write", str(tmp_path / "page.md")])


def test_every_key_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", render(), re.MULTILINE)
    assert rows == [key.name.rpartition(".")[2] for key in Configuration.describe()]


def test_every_flag_is_named() -> None:
    for flag in FLAGS:
        assert f"`--{flag}`" in PAGE.read_text()


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert "queues" in tomllib.loads(example)
    (tmp_path / "a.toml").write_text(example)
    assert load(tmp_path / "a.toml", environment={}).queues.template.max_attempts == 10


def test_reasons_stand_below_the_fields() -> None:
    assert field_reasons(Sample) == {"one": "The first one.", "two": "The second."}
    with pytest.raises(AssertionError, match=r"Silent\.one has no reason"):
        field_reasons(Silent)


def test_queues_have_a_reason_for_each_field() -> None:
    assert list(QUEUE_REASONS) == list(Configuration().queues.template.__struct_fields__)


class Sample(msgspec.Struct):
    """Not a reason."""

    one: int = 1
    """The first
    one."""

    def method(self) -> None:
        """Not one either."""

    two: int = 2
    """The second."""


class Silent(msgspec.Struct):
    one: int = 1
    two: int = 2
    """The second."""
