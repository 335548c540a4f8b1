"""Fixtures of the embedded store's own tests; the conformance suite runs over it elsewhere."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.storage.backends import fast_folder
from tests.storage.sqlite.tools import Opened


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=fast_folder()) as name:
        yield Path(name) / "data"


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[Opened]:
    """Opens stores on the folder, and closes what a test left open."""
    opened = Opened(folder)
    yield opened
    await opened.close()
