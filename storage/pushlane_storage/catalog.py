"""The catalog: the rows of queues, changed by compare-and-set only."""

from __future__ import annotations

from typing import Protocol

from pushlane_storage.queue import QueueConfig, QueueRow


class Catalog(Protocol):
    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        """A new row with a fresh id and version 1, or `QueueExists`."""
        ...

    async def read(self, tenant: str, name: str) -> QueueRow | None: ...

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        """Rows with names greater than `after`, by name."""
        ...

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        """Replace the configuration if id and version still are the row's.

        Also that of a queue that is being deleted: its shards go from the last to the first.
        """
        ...

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        """The first step of deletion; from here on the name takes no publish.

        Where others may own slots of the queue they find its shards among what is due. Safe to
        repeat.
        """
        ...

    async def remove(self, row: QueueRow) -> None:
        """The last step: the row and all that its shards stored. Safe to repeat."""
        ...
