"""The roster: all members of a keyspace in one partition, so that one small read shows them.

Each process writes its own row, with every heartbeat. Whoever looks compares the heartbeats with
those of its last look. Those that have moved are there. Of the others, and of those that are new to
it, it reads the node rows: who has left, or was fenced, is taken off, for everybody.

A row is text that any version can read, whatever fields of a member its own one knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.limits import DAY_SECONDS, Limits
from pushlane_storage.cassandra.ring import Delete, Range, Ring, Row, Write, read_all
from pushlane_storage.cassandra.tables import EVERYBODY, ROSTER, keyed
from pushlane_storage.interface import StoreError
from pushlane_storage.member import Member
from pushlane_storage.work import gather


def entry(member: Member) -> Write:
    """A process's row. Its later heartbeat wins, whatever its clock does."""
    text = msgspec.json.encode(member).decode()
    row = keyed(ROSTER, (EVERYBODY, member.process), beat=member.beat, member=text)
    return Write(ROSTER, [row], stamp=member.beat, ttl=DAY_SECONDS)


def removal(process: str) -> Delete:
    """For good: it wins over all that a process writes that does not know of it yet."""
    return Delete(ROSTER, (EVERYBODY, process), stamps.FOREVER)


class Roster:
    def __init__(
        self, ring: Ring, is_there: Callable[[str], Awaitable[bool]], limits: Limits
    ) -> None:
        """`is_there` looks a process up: it neither left nor was fenced."""
        self._ring = ring
        self._is_there = is_there
        self._limits = limits
        self._beats: dict[str, int] = {}
        """Of everybody, as of the last look."""
        self._gone: set[str] = set()
        """Those of them that are known to be gone."""

    async def others(self, own: str) -> list[Member]:
        """Everybody who is there but this process."""
        rows = await self._read()
        rows.pop(own, None)
        still = [name for name, row in rows.items() if not self._has_moved(row)]
        self._beats = {name: row["beat"] for name, row in rows.items()}
        self._gone &= rows.keys()
        unsure = [name for name in still if name not in self._gone]
        there = await gather(self._is_there, unsure, self._limits.reads)
        self._gone |= {name for name in unsure if not there[name]}
        gone = [name for name in rows if name in self._gone]
        await gather(self._remove, gone, self._limits.reads)
        return [_member_of(row) for name, row in rows.items() if name not in gone]

    async def _read(self) -> dict[str, Row]:
        every = Range(ROSTER, (EVERYBODY,), self._limits.page_rows)
        return {row["process"]: row for row in await read_all(self._ring, every)}

    def _has_moved(self, row: Row) -> bool:
        before = self._beats.get(row["process"])
        return before is not None and before != row["beat"]

    async def _remove(self, process: str) -> None:
        with suppress(StoreError):  # the next look does it
            await self._ring.write(removal(process))


def _member_of(row: Row) -> Member:
    process = row["process"]
    try:
        return msgspec.json.decode(row["member"], type=Member)
    except msgspec.MsgspecError:  # of a version that shows itself in another way
        return Member(process=process, name=process, beat=row["beat"])
