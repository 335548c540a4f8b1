"""A ring on the three replicas on which nothing goes wrong: any two of them answer, at once.

Plain writes land on any two replicas only, so that whoever reads relies on quorums.
"""

from __future__ import annotations

from random import Random

import trio

from pushlane_storage.cassandra.ring import (
    Change,
    Delete,
    Level,
    Numbers,
    Range,
    Row,
    Write,
    check_change,
    check_range,
    check_write,
)
from pushlane_storage.interface import Outcome
from pushlane_storage.wall import wall_clock
from tests.simulation.replicated.replicas import COUNT, QUORUM, Replicas


class CalmRing:
    def __init__(self, replicas: Replicas, rng: Random) -> None:
        self.numbers = Numbers()
        self._replicas = replicas
        self._rng = rng

    def _two(self) -> list[int]:
        return self._rng.sample(range(COUNT), QUORUM)

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        self._write(write)
        trio.lowlevel.current_trio_token().run_sync_soon(done, None)

    async def write(self, write: Write | Delete) -> None:
        await trio.lowlevel.checkpoint()
        self._write(write)

    def _write(self, write: Write | Delete) -> None:
        check_write(write)
        stamp = self._replicas.stamp() if write.stamp is None else write.stamp
        self._replicas.apply(write, stamp, self._two())

    async def read(self, range: Range) -> list[Row]:
        await trio.lowlevel.checkpoint()
        check_range(range)
        if range.level is Level.SERIAL:
            return self._replicas.serial(range, self._two())
        return self._replicas.read(range, self._two())

    async def change(self, change: Change) -> bool:
        await trio.lowlevel.checkpoint()
        check_change(change)
        applied = self._replicas.decide(change, self._two())
        self._replicas.commit(change.table, change.key, self._two())
        return applied

    async def time(self) -> int:
        await trio.lowlevel.checkpoint()
        return wall_clock()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
