from pathlib import Path

import pytest

from tools.package import build_python


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both sdists, and both wheels built from the sdists."""
    folder = tmp_path_factory.mktemp("built")
    build_python(folder)
    return folder
