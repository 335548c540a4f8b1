"""Fixtures of the tests of copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.storage.backends import fast_folder
from tests.storage.copy.tools import keyspaces


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=fast_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def keyspace() -> Iterator[Callable[[], str]]:
    """Makes URLs of keyspaces that are not there yet."""
    with keyspaces() as make:
        yield make
