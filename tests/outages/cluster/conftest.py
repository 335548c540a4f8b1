"""One Cassandra node for all tests in here. Whoever breaks it fixes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.services.cassandra import Ring, running_cassandra


@pytest.fixture(scope="session")
def single() -> Iterator[Ring]:
    with running_cassandra(1) as ring:
        yield ring
