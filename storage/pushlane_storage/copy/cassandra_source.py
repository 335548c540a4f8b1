"""A replicated store as the source of a copy.

The copy registers as one more process and claims all slots, as servers do: so those that run are
found, those that died are fenced, and those that start meanwhile own nothing. Each claim writes
down its owner, here the copy: as long as all slots still name it, no server has been there since.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.membership import Membership, join
from pushlane_storage.cassandra.slots import is_copying
from pushlane_storage.cassandra.tables import SLOTS as TABLE
from pushlane_storage.copy.errors import CopyTaken, SourceMissing, SourceServed
from pushlane_storage.copy.keyspace import Keyspace, connected
from pushlane_storage.copy.rows import Rows
from pushlane_storage.errors import OpenError
from pushlane_storage.interface import Fenced, StoreRefused
from pushlane_storage.slot import SLOTS
from pushlane_storage.work import gather


class CassandraSource:
    """Made by `open_source`."""

    def __init__(self, name: str, keyspace: Keyspace, stack: AsyncExitStack) -> None:
        """What is held is given back when the stack is unwound."""
        self.name = name
        self.rows: Rows = keyspace.rows()
        self._keyspace = keyspace
        self._stack = stack
        self._membership: Membership | None = None

    async def identity(self) -> str:
        return f"cassandra {await self._keyspace.salt()}"

    async def check_quiet(self) -> None:
        found = await self._keyspace.beating()
        if found is not None:
            raise SourceServed(self.name, f"process {found['process']} on {found['address']}")

    async def check_centre(self) -> None:
        """What was written in another data centre is not on a quorum of ours."""
        home = await self._keyspace.home()
        for row in await self._keyspace.scan.read(TABLE, "slot, dc"):
            if home.refusal(row["dc"], is_free=True) is not None:
                named = f"say dc={row['dc']}" if row["dc"] else "say no dc"
                raise SourceMissing(
                    f"{self.name}: slot {row['slot']} belongs to data centre"
                    f" {row['dc'] or '(none)'}: {named} in its URL, as its servers do"
                )

    async def hold(self, copy: str) -> None:
        keyspace = self._keyspace
        joining = join(
            keyspace.ring,
            keyspace.decisions,
            keyspace.limits,
            socket.gethostname(),
            await keyspace.home(),
            secrets.token_bytes,
        )
        self._membership = membership = await self._stack.enter_async_context(joining)

        async def claim(slot: int) -> int:
            return await membership.claim(slot, _owner(copy))

        try:
            await gather(claim, range(SLOTS), keyspace.limits.reads)
        except StoreRefused as error:
            raise SourceServed(self.name, str(error)) from error

    async def is_untouched(self, copy: str) -> bool:
        rows = await self._keyspace.scan.read(TABLE, "slot, owner")
        return len(rows) == SLOTS and all(row["owner"] == _owner(copy) for row in rows)

    async def confirm(self) -> None:
        membership = self._membership
        assert membership is not None, "not held"
        try:
            await membership.node.fence.confirm()
        except Fenced as error:
            raise CopyTaken(
                f"a server took over {self.name} meanwhile: stop it, and run this again"
            ) from error

    async def epoch(self) -> int:
        rows = await self._keyspace.scan.read(TABLE, "slot, epoch")
        return max((row["epoch"] for row in rows), default=0)


def _owner(copy: str) -> str:
    return f"pushlane store copy {copy}"


@asynccontextmanager
async def open_source(
    name: str, address: Address, limits: Limits
) -> AsyncIterator[CassandraSource]:
    try:
        async with connected(address, limits) as keyspace, AsyncExitStack() as stack:
            await keyspace.migration.check()
            if await is_copying(keyspace.ring):
                raise SourceMissing(f"{name} holds a copy that is not finished: finish it first")
            source = CassandraSource(name, keyspace, stack)
            await source.check_centre()
            await source.check_quiet()
            yield source
    except OpenError as error:
        raise SourceMissing(f"{name} can't be read: {error}") from error
