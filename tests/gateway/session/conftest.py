"""These tests run on mock time."""

from pathlib import Path

import pytest

from tests.mock_time import on_mock_time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_mock_time(items, Path(__file__).parent)
