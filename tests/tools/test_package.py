"""`make package`: what it makes, and what it says. tests/repo/test_wheels.py looks inside."""

from pathlib import Path

import pytest

from tests.repo import ROOT
from tools.package import KINDS, main, remove_older, run, version


def test_it_makes_five_files_and_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pushlane-0.0.9.tgz").touch()
    main(["--out", "out"])
    files = [name.format(version()) for name in KINDS]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(files)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"out/{name}" for name in files]
    assert [line.split(" kB  ")[1] for line in lines] == list(KINDS.values())


def test_only_packages_are_removed(tmp_path: Path) -> None:
    older = [name.format("0.0.9") for name in KINDS]
    others = ["pushlane-notes.tgz", "thesis.tar.gz", "other-1.0-py3-none-any.whl"]
    for name in older + others:
        (tmp_path / name).touch()
    remove_older(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_what_fails_is_shown() -> None:
    with pytest.raises(SystemExit, match=r"package: sh -c .* failed:\nno room\n"):
        run("sh", "-c", "echo no room >&2; exit 1", cwd=ROOT)
