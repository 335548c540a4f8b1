"""What a run of the retention job did, or would do."""

from __future__ import annotations

import msgspec


class QueueReport(msgspec.Struct):
    tenant: str
    queue: str
    archived_buckets: int = 0
    archived_messages: int = 0
    dropped_buckets: int = 0
    waiting: dict[str, int] = {}
    """Buckets that could not be dropped (or archived) yet, by what they wait for."""


class Unfit(msgspec.Struct):
    """A bucket that was not archived, and stays."""

    queue_id: str
    shard: int
    lane: int
    epoch: int
    start: int
    reason: str


class RetentionReport(msgspec.Struct):
    store: str
    archive: str | None
    dry_run: bool
    at: int
    """Unix milliseconds: the time that it went by."""
    queues: list[QueueReport] = []
    """Those for which there was something to do."""
    resumed: int = 0
    """Groups that an earlier run had committed, and this one carried out."""
    beyond_seals: int = 0
    """Stored messages that don't exist: a fenced owner wrote them. They are never archived."""
    orphans: dict[str, int] = {}
    """Buckets of queues that are not there, by queue id."""
    removed: list[str] = []
    """Which of these queues were removed."""
    unfit: list[Unfit] = []

    @property
    def archived_messages(self) -> int:
        return sum(queue.archived_messages for queue in self.queues)

    @property
    def dropped_buckets(self) -> int:
        return sum(queue.dropped_buckets for queue in self.queues)

    def of(self, tenant: str, queue: str) -> QueueReport:
        """The part of a queue, made when it is not there."""
        for found in self.queues:
            if (found.tenant, found.queue) == (tenant, queue):
                return found
        self.queues.append(QueueReport(tenant, queue))
        return self.queues[-1]
