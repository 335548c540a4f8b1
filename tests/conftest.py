"""Settings that hold for every test, and which of them run on mock time."""

import signal
from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from trio.testing import MockClock

from tests.services import cassandra_ring_service, cassandra_service, redis_service

__all__ = ["cassandra_ring_service", "cassandra_service", "redis_service"]

# No deadline: the machines that run these tests are shared, and a slow moment is no failure.
settings.register_profile("pushlane", deadline=None, print_blob=True)
settings.load_profile("pushlane")

# Started in the background without job control (`nohup make test &`), we inherit that interrupts
# are ignored, and so would all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MOCK_TIME = [
    Path(__file__).parent / folder
    for folder in ("dispatcher", "gateway/http", "gateway/pipe", "gateway/session")
]
"""In tests of these folders, and not of those in them, time jumps when nothing is left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.path.parent in MOCK_TIME
            and iscoroutinefunction(item.obj)
        ):
            item.add_marker(pytest.mark.trio(run=_on_mock_time), append=False)


def _on_mock_time(main: Callable[[], Any], *, clock: trio.abc.Clock | None, **options: Any) -> Any:
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), **options)
