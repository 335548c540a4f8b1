"""The files of the page; test_main.py asks for them."""

from pathlib import Path

import pytest

from tools.demo.site import find_files
from tools.services.process import CannotStart


def test_files_by_name(tmp_path: Path) -> None:
    page, bundle = tmp_path / "page", tmp_path / "pushlane.min.js"
    (page / "folder").mkdir(parents=True)
    (page / "index.html").touch()
    bundle.touch()
    assert find_files(page, bundle) == {"index.html": page / "index.html", bundle.name: bundle}


@pytest.mark.parametrize("there", ["index.html", "pushlane.min.js"])
def test_what_is_not_built_is_said(tmp_path: Path, there: str) -> None:
    (tmp_path / there).touch()
    with pytest.raises(CannotStart, match="run `make demo`"):
        find_files(tmp_path, tmp_path / "pushlane.min.js")
