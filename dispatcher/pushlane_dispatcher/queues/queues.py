"""Queues: their rows, in the store and remembered here.

Rows are remembered for a short while (`row_ms`): other processes change them too. Whatever is
changed here is remembered at once; a change with an unknown outcome is forgotten, so that the next
reader asks the store. Before a shard serves anybody its row is read anew, and what is open is
compared with its row again and again (upkeep.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane.wire.names import check_queue_name, check_tenant_name
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.queues.config import check_config
from pushlane_storage.interface import (
    Fenced,
    QueueExists,
    QueueMissing,
    SlotOwned,
    StoreDamaged,
    StoreRefused,
    StoreUnknown,
    VersionConflict,
)
from pushlane_storage.member import Owner
from pushlane_storage.queue import QueueConfig, QueueRow

PAGE = 1_000
"""The most rows that one `list` answers."""

Name = tuple[str, str]
"""Tenant and queue."""


@contextmanager
def store_answers(name: str) -> Iterator[None]:
    """What a store answers to the owner of rows, as the wire's errors."""
    try:
        yield
    except QueueExists:
        raise Conflict(f"queue {name} exists") from None
    except QueueMissing:
        raise NotFound(f"there is no queue {name}") from None
    except VersionConflict:
        raise Conflict(f"queue {name} was changed meanwhile") from None
    except SlotOwned as error:
        raise Elsewhere(name, error.owner) from None
    except (StoreRefused, StoreUnknown, StoreDamaged, Fenced) as error:
        raise Unavailable(f"the store could not answer for {name}", retry_ms=1_000) from error


class Elsewhere(Unsent):
    """Another server has what is needed, and is alive: nothing was done here."""

    def __init__(self, name: str, owner: Owner) -> None:
        super().__init__(f"queue {name} is in use by server {owner.name}: ask there", 1_000)
        self.owner = owner


class Queues:
    def __init__(self, context: Context, met: Callable[[QueueRow], None]) -> None:
        """`met` is told of each queue whose deletion is not finished."""
        self._catalog = context.store.catalog
        self._limits = context.limits
        self._now = context.clock.now
        self._settings = context.settings
        self._met = met
        self._rows: dict[Name, tuple[QueueRow, int]] = {}
        """With the (monotonic) time at which the store was asked for it."""

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        check_tenant_name(tenant)
        check_queue_name(name)
        config = check_config(name, config, self._limits)
        asked_at = self._now()
        with store_answers(name):
            return self._remember(await self._catalog.create(tenant, name, config), asked_at)

    async def get(self, tenant: str, name: str) -> QueueRow:
        """The row of a queue that can be used."""
        row, asked_at = self._rows.get((tenant, name), (None, 0))
        if row is None or self._now() - asked_at >= self._settings.row_ms:
            row = await self.read(tenant, name)
        if row.deleting:
            self._met(row)
            raise NotFound(f"queue {name} is being deleted")
        return row

    async def read(self, tenant: str, name: str) -> QueueRow:
        """The row as the store has it, perhaps of a queue that is being deleted."""
        check_tenant_name(tenant)
        check_queue_name(name)
        asked_at = self._now()
        with store_answers(name):
            row = await self._catalog.read(tenant, name)
        if row is None:
            self._forget(tenant, name)
            raise NotFound(f"there is no queue {name}")
        return self._remember(row, asked_at)

    async def confirm(self, row: QueueRow) -> QueueRow:
        """The row anew; `Unavailable` when it is another queue's by now, or being deleted.

        Asked after the claim, and that is what makes a deletion safe: who was not owner when the
        row was marked will not serve.
        """
        found = await self.read(row.tenant, row.name)
        if found.id != row.id or found.deleting:
            raise Unavailable(f"queue {row.name} was deleted just now", retry_ms=1_000)
        return found

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> list[QueueRow]:
        """Rows by name, also of queues that are being deleted."""
        check_tenant_name(tenant)
        if not 1 <= limit <= PAGE:
            raise BadRequest(f"limit is {limit}: 1 to {PAGE}")
        with store_answers(tenant):
            rows = await self._catalog.list(tenant, after, limit)
        for row in rows:
            if row.deleting:
                self._met(row)
        return rows

    async def update(
        self,
        tenant: str,
        name: str,
        config: QueueConfig,
        version: int | None = None,
        id: str | None = None,
    ) -> QueueRow:
        """Replace the configuration; with a version or an id, only if the queue has it still."""
        config = check_config(name, config, self._limits)
        row = await self.read(tenant, name)
        if row.deleting:
            self._met(row)
            raise NotFound(f"queue {name} is being deleted")
        if version is not None and version != row.version:
            raise Conflict(f"queue {name} has version {row.version}, not {version}")
        if id is not None and id != row.id:
            raise Conflict(f"queue {name} was deleted and created again meanwhile")
        if config.shards != row.config.shards:
            raise BadRequest("shards can't be changed: keys would lose their order")
        self._forget(tenant, name)
        asked_at = self._now()
        with store_answers(name):
            return self._remember(await self._catalog.update(row, config), asked_at)

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        """From here on nobody can use it."""
        self._forget(row.tenant, row.name)
        asked_at = self._now()
        with store_answers(row.name):
            return self._remember(await self._catalog.mark_deleting(row), asked_at)

    async def take_off(self, row: QueueRow, left: int) -> None:
        """Only so many shards of a queue that is being deleted are left."""
        config = msgspec.structs.replace(row.config, shards=left)
        self._forget(row.tenant, row.name)
        with store_answers(row.name):
            await self._catalog.update(row, config)

    async def remove(self, row: QueueRow) -> None:
        with store_answers(row.name):
            await self._catalog.remove(row)
        self._forget(row.tenant, row.name)

    # What is remembered

    def _remember(self, row: QueueRow, asked_at: int) -> QueueRow:
        self._forget(row.tenant, row.name)
        if len(self._rows) >= self._settings.queue_rows:
            del self._rows[next(iter(self._rows))]
        self._rows[row.tenant, row.name] = row, asked_at
        return row

    def _forget(self, tenant: str, name: str) -> None:
        self._rows.pop((tenant, name), None)
