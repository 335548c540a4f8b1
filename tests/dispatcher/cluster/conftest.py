"""Time passes only when nothing else is to be done."""

from __future__ import annotations

import pytest
import trio


@pytest.fixture(autouse=True)
def _mock(autojump_clock: trio.testing.MockClock) -> None:
    """All tests of this folder."""
