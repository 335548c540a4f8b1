"""The real servers that tests use: one of each for a whole run, however many workers it has.

They start when the first test asks for them. They can't be skipped: where one can't start, its
tests fail and say why. Tests that kill or pause a server start one of their own
(`tools.services.redis`, `tools.services.cassandra`).
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.services.shared import Service, shared_service

_held = ExitStack()
_services: dict[str, Service] = {}
_lock = threading.Lock()


def run_folder() -> Path:
    """The same for all workers of a run, and for no other run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid-{os.getpid()}"
    return Path(tempfile.gettempdir(), f"pushlane-tests-{run}")


def service(kind: str) -> Service:
    """Use a service until this process ends: then it is stopped, unless another still uses it.

    Any thread may ask; state machines run outside of pytest's fixtures.
    """
    with _lock:
        if kind not in _services:
            _services[kind] = _held.enter_context(shared_service(kind, run_folder()))
        return _services[kind]


atexit.register(_held.close)


def _fixture(kind: str) -> Callable[[], Service]:
    @pytest.fixture(scope="session", name=f"{kind.replace('-', '_')}_service")
    def fixture() -> Service:
        return service(kind)

    return fixture


redis_service = _fixture("redis")
cassandra_service = _fixture("cassandra")
cassandra_ring_service = _fixture("cassandra-ring")
