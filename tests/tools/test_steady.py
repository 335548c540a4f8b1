"""A test that failed gets another chance, alone; one that is wrong fails again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import ROOT

UNSTEADY = """
from pathlib import Path

def test_good(): pass

def test_unsteady():
    runs = Path(__file__).with_suffix(".runs")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) not in ({bad})
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_sample.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tools.steady"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_that_passes_alone_is_named(tmp_path: Path) -> None:
    result = run(tmp_path, UNSTEADY.format(bad="1,"))
    assert result.returncode == 0, result.stdout
    assert "== unsteady:" in result.stdout
    assert "test_sample.py::test_unsteady" in result.stdout.splitlines()[-1]
    assert (tmp_path / "test_sample.runs").read_text() == "xxxx"


@pytest.mark.parametrize("bad", ["1, 2", "1, 4"])
def test_one_that_fails_again_fails(tmp_path: Path, bad: str) -> None:
    result = run(tmp_path, UNSTEADY.format(bad=bad))
    assert result.returncode == 1
    assert "unsteady:" not in result.stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def test_good(): pass", 0),
        ("".join(f"def test_{n}(): assert False\n" for n in range(4)), 1),
        ("import nothing_of_that_name", 2),
    ],
)
def test_others_run_once(tmp_path: Path, text: str, code: int) -> None:
    result = run(tmp_path, text)
    assert result.returncode == code, result.stdout
    assert "again, alone" not in result.stdout
