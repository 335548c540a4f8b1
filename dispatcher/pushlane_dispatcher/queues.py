"""Queues: their rows, in the store and remembered here, and who is whose dead-letter queue.

Rows are remembered because every publish needs one. Whatever is changed here is remembered at
once; a change with an unknown outcome is forgotten, so that the next reader asks the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane.wire.names import check_queue_name, check_tenant_name
from pushlane_dispatcher.config import check_config, own_dead_letter
from pushlane_dispatcher.tools import Tools
from pushlane_storage.interface import (
    Fenced,
    QueueExists,
    QueueMissing,
    StoreDamaged,
    StoreRefused,
    StoreUnknown,
    VersionConflict,
)
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
    except (StoreRefused, StoreUnknown, StoreDamaged, Fenced) as error:
        raise Unavailable(f"the store could not answer for {name}", retry_ms=1_000) from error


class Queues:
    def __init__(self, tools: Tools) -> None:
        self._store = tools.store
        self._limits = tools.limits
        self._most = tools.settings.queue_rows
        self._rows: dict[Name, QueueRow] = {}
        self._targets: dict[str, dict[str, str]] = {}
        """By tenant: which queues name which other one for their dead letters."""

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        check_tenant_name(tenant)
        check_queue_name(name)
        config = check_config(name, config, self._limits)
        with store_answers(name):
            return self._remember(await self._store.create_queue(tenant, name, config))

    async def get(self, tenant: str, name: str) -> QueueRow:
        """The row of a queue that can be used."""
        row = self._rows.get((tenant, name)) or await self.read(tenant, name)
        if row.deleting:
            raise NotFound(f"queue {name} is being deleted")
        return row

    async def read(self, tenant: str, name: str) -> QueueRow:
        """The row as the store has it, perhaps of a queue that is being deleted."""
        check_tenant_name(tenant)
        check_queue_name(name)
        with store_answers(name):
            row = await self._store.read_queue(tenant, name)
        if row is None:
            self._forget(tenant, name)
            raise NotFound(f"there is no queue {name}")
        return self._remember(row)

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> list[QueueRow]:
        """Rows by name, also of queues that are being deleted."""
        check_tenant_name(tenant)
        if not 1 <= limit <= PAGE:
            raise BadRequest(f"limit is {limit}: 1 to {PAGE}")
        with store_answers(tenant):
            return await self._store.list_queues(tenant, after, limit)

    async def update(
        self, tenant: str, name: str, config: QueueConfig, version: int | None = None
    ) -> QueueRow:
        """Replace the configuration; with a version, only if nobody else did since."""
        config = check_config(name, config, self._limits)
        row = await self.read(tenant, name)
        if row.deleting:
            raise NotFound(f"queue {name} is being deleted")
        if version is not None and version != row.version:
            raise Conflict(f"queue {name} has version {row.version}, not {version}")
        if config.shards != row.config.shards:
            raise BadRequest("shards can't be changed: keys would lose their order")
        self._forget(tenant, name)
        with store_answers(name):
            return self._remember(await self._store.update_queue(row, config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        """From here on nobody can use it."""
        self._forget(row.tenant, row.name)
        with store_answers(row.name):
            return self._remember(await self._store.mark_deleting(row))

    async def remove(self, row: QueueRow) -> None:
        with store_answers(row.name):
            await self._store.remove_queue(row)
        self._forget(row.tenant, row.name)

    # Dead letters

    async def dead_letter(self, row: QueueRow) -> str | None:
        """Where a queue's dead letters go. What is a dead-letter queue itself has none."""
        own = own_dead_letter(row.name, row.config)
        if own is None or row.name in (await self._targets_of(row.tenant)).values():
            return None
        return own

    async def _targets_of(self, tenant: str) -> dict[str, str]:
        if tenant not in self._targets:
            found: dict[str, str] = {}
            after = ""
            while rows := await self.list(tenant, after, PAGE):
                found.update((row.name, row.config.dead_letter or "") for row in rows)
                after = rows[-1].name
            targets = {name: target for name, target in found.items() if target}
            self._targets.setdefault(tenant, targets)
        return self._targets[tenant]

    # What is remembered

    def _remember(self, row: QueueRow) -> QueueRow:
        self._forget(row.tenant, row.name)
        if len(self._rows) >= self._most:
            del self._rows[next(iter(self._rows))]
        self._rows[row.tenant, row.name] = row
        if row.config.dead_letter and row.tenant in self._targets:
            self._targets[row.tenant][row.name] = row.config.dead_letter
        return row

    def _forget(self, tenant: str, name: str) -> None:
        self._rows.pop((tenant, name), None)
        self._targets.get(tenant, {}).pop(name, None)
