"""Which tests `make quick` leaves out: those that can start a process, by whatever they import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick import imported, starts_nothing
from tests.repo import ROOT


@pytest.mark.parametrize(
    "name",
    [
        "tests/wire/test_codec.py",
        "tests/storage/test_seq.py",
        "tests/gateway/session/test_delivery.py",
        "tests/quick.py",
    ],
)
def test_these_are_quick(name: str) -> None:
    assert starts_nothing(ROOT / name)


@pytest.mark.parametrize(
    "name",
    [
        "tests/services.py",
        "tests/behaviour/conftest.py",
        "tests/crash/test_crash.py",
        "tests/gateway/test_serve_command.py",
        "tests/storage/conftest.py",
    ],
)
def test_these_are_not(name: str) -> None:
    assert not starts_nothing(ROOT / name)


def test_every_way_to_import(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text("import a.b\nfrom c.d import e, f\n\ndef later():\n    import g\n")
    assert sorted(imported(file)) == ["a.b", "c.d.e", "c.d.f", "g"]
