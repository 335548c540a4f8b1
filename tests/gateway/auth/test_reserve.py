"""The descriptor in reserve."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pushlane_gateway.auth.reserve import Reserve


@contextmanager
def full_table() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while len(taken) <= taken[0]:  # no gap is left below the highest
        taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def read() -> bytes:
    with open("/proc/self/comm", "rb") as file:
        return file.read()


def test_it_reads_when_nothing_else_can() -> None:
    with Reserve() as reserve, full_table():
        with pytest.raises(OSError, match="Too many open files"):
            read()
        for _ in range(3):
            assert reserve.use(read)
        with pytest.raises(OSError, match="Too many open files"):
            read()


def test_a_failure_gives_it_back() -> None:
    with Reserve() as reserve, full_table():
        with pytest.raises(ZeroDivisionError):
            reserve.use(lambda: 1 / 0)
        assert reserve.use(read)


def test_none_to_be_had() -> None:
    with full_table():
        reserve = Reserve()
        with pytest.raises(OSError, match="Too many open files"):
            reserve.use(read)
    reserve.take()
    reserve.take()
    assert reserve.use(read)
    reserve.give_up()
