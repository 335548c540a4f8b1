"""A test that failed gets another chance, alone; one that is wrong fails again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.repo import ROOT
from tools import retrying

MOST = 0
"""Known unsteady tests. This number may only go down."""

UNSTEADY = """
from pathlib import Path

def test_good(): pass

def test_unsteady():
    runs = Path(__file__).with_suffix(".runs")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) != 1
"""


def test_one_that_passes_alone_is_named(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_sample.py").write_text(UNSTEADY)
    result = subprocess.run(
        [sys.executable, "-m", "tools.retrying"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "\n== unsteady: test_sample.py::test_unsteady\n" in result.stdout
    assert "test_sample.py::test_unsteady" in result.stdout.partition("== NEW")[2]
    assert (tmp_path / "test_sample.runs").read_text() == "xxxx"


class Runs:
    """Stands for pytest: how its runs end, one after the other."""

    def __init__(self, codes: list[int], failed: list[str]) -> None:
        self._codes: Iterator[int] = iter(codes)
        self._failed = failed
        self.asked: list[list[str]] = []

    def __call__(self, arguments: list[str]) -> int:
        self.asked.append(arguments)
        if len(self.asked) == 1:
            kept = Path(arguments[-1].removeprefix("cache_dir="), "v", "cache", "lastfailed")
            kept.parent.mkdir(parents=True)
            kept.write_bytes(msgspec.json.encode(dict.fromkeys(self._failed, True)))
        return next(self._codes)


@pytest.mark.parametrize(
    ("codes", "failed", "code"),
    [
        ([0], [], 0),
        ([2], [], 2),
        ([1], ["a", "b", "c", "d"], 1),
        ([1, 1], ["a"], 1),
        ([1, 0, 0, 1], ["a"], 1),
        ([1, 0, 0, 0], ["a", "b", "c"], 0),
    ],
)
def test_how_often_it_runs(
    codes: list[int], failed: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(codes, failed)
    monkeypatch.setattr(retrying, "run_pytest", runs)
    assert retrying.main(["-n", "2"]) == code
    assert len(runs.asked) == len(codes)
    assert runs.asked[0][:2] == ["-n", "2"]
    for again in runs.asked[1:]:
        assert again[-len(failed) :] == failed


def test_only_those_that_are_not_listed_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "unsteady.txt"
    known.write_text("# some\ntests/test_a.py::test_one\n")
    monkeypatch.setattr(retrying, "KNOWN", known)
    retrying.report(["tests/test_a.py::test_one[x]"])
    assert "NEW" not in capsys.readouterr().out
    retrying.report(["tests/test_a.py::test_one[x]", "tests/test_a.py::test_two"])
    assert capsys.readouterr().out.partition("NEW")[2].split()[-1] == "tests/test_a.py::test_two"


def test_the_list_names_what_there_is_and_does_not_grow() -> None:
    known = retrying.known_tests()
    assert len(known) <= MOST
    for test in known:
        path, _, name = test.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(), test
