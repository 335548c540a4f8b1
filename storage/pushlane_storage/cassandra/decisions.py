"""Lightweight transactions, decided: applied or not, also when one timed out.

A transaction that timed out is read again at SERIAL: that finishes it or rules it out, but for one
that its coordinator tries again behind our back; so if nothing has changed it is tried again, and
whichever of the two lands, the row shows a nonce (or an id) that only we know.

Transactions on one partition don't go well side by side, and neither do reads at SERIAL: each may
make the others fail. Those of this process wait for each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from pushlane_storage.cassandra.ring import Change, Level, Ring, Row, Table, read_row
from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown


class Decided(NamedTuple):
    applied: bool
    row: Row | None
    """As it stands, if it was read."""


Verdict = Callable[[Row | None], bool | None]
"""Of a row that is not as expected: it was us, it was not, or nobody can tell."""


class Decisions:
    def __init__(self, ring: Ring, tries: int) -> None:
        self._ring = ring
        self._tries = tries
        self._locks: dict[tuple[Any, ...], tuple[trio.Lock, int]] = {}

    async def decide(self, change: Change, verdict: Verdict) -> Decided:
        """`StoreRefused` or `StoreUnknown` when it could not be decided."""
        async with self._alone(change.table, change.key):
            return await self._decide(change, verdict)

    async def read(self, table: Table, key: tuple[Any, ...]) -> Row | None:
        """A row as it stands, behind all that was decided before."""
        async with self._alone(table, key):
            return await self._read(table, key)

    async def _read(self, table: Table, key: tuple[Any, ...]) -> Row | None:
        return await read_row(self._ring, table, key, Level.SERIAL)

    async def _decide(self, change: Change, verdict: Verdict) -> Decided:
        doubt: StoreError | None = None
        for _ in range(self._tries):
            try:
                if await self._ring.change(change):
                    return Decided(True, None)
            except StoreUnknown as error:
                doubt = error
            except StoreRefused as error:
                if doubt is None:
                    raise
                raise StoreUnknown(f"{doubt}; then {error}") from error
            try:
                row = await self._read(change.table, change.key)
            except StoreRefused as error:
                if doubt is None:
                    raise
                raise StoreUnknown(f"{doubt}; then {error}") from error
            if _is_expected(change, row):
                continue
            found = False if doubt is None else verdict(row)
            if found is None:
                raise StoreUnknown(f"others have changed {change.key} meanwhile") from doubt
            return Decided(found, row)
        raise doubt or StoreUnknown(f"{change.key} keeps changing")

    @asynccontextmanager
    async def _alone(self, table: Table, key: tuple[Any, ...]) -> AsyncIterator[None]:
        place = (table.name, *key[: len(table.partition)])
        lock, users = self._locks.get(place, (trio.Lock(), 0))
        self._locks[place] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(place)
            if users > 1:
                self._locks[place] = lock, users - 1


def _is_expected(change: Change, row: Row | None) -> bool:
    if change.expect is None or row is None:
        return change.expect is None and row is None
    return all(row[name] == value for name, value in change.expect.items())
