"""A publication: what became of each message of one publish, in the wire's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pushlane.wire.errors import PushlaneError
from pushlane.wire.limits import DEFAULT_LANE
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.core.ident import make_id, make_ids
from pushlane_storage.bucket import ShardKey


class Publication:
    """Indexes are the caller's; shards answer in any order."""

    __slots__ = ("_answer", "_waits", "duplicates", "failed", "ids")

    def __init__(self, count: int, shards: int, answer: Callable[[Publication], None]) -> None:
        self.ids: list[str | None] = [None] * count
        """None where it failed, and for a duplicate of something too old to be known by its id."""
        self.duplicates: list[int] = []
        """Indexes of messages that had been stored before, in order."""
        self.failed: dict[int, PushlaneError] = {}
        self._waits = shards
        self._answer = answer

    def answered(
        self,
        shard: ShardKey,
        indexes: Sequence[int],
        ticket: PublishTicket,
        error: PushlaneError | None,
    ) -> None:
        """One shard has decided; `indexes` are where its messages stand."""
        if error is None:
            self._take(shard, indexes, ticket)
            self._one_less()
        else:
            self.refused(indexes, error)

    def refused(self, indexes: Sequence[int], error: PushlaneError) -> None:
        """One shard says the same of all its messages."""
        self.failed.update(dict.fromkeys(indexes, error))
        self._one_less()

    def _one_less(self) -> None:
        self._waits -= 1
        if not self._waits:
            self.duplicates.sort()
            self._answer(self)

    def _take(self, shard: ShardKey, indexes: Sequence[int], ticket: PublishTicket) -> None:
        lanes, failed, duplicates = ticket.lanes, ticket.failed, ticket.duplicates
        seqs = ticket.seqs
        if (
            lanes is None
            and not failed
            and not duplicates
            and len(indexes) == len(self.ids)
            and seqs[-1] - seqs[0] == len(seqs) - 1
        ):
            self.ids = [*make_ids(*shard, DEFAULT_LANE, seqs[0], len(seqs))]
            return
        for n, seq in enumerate(ticket.seqs):
            index = indexes[n]
            if n in failed:
                self.failed[index] = failed[n]
                continue
            lane = DEFAULT_LANE if lanes is None else lanes[n]
            if n in duplicates:
                self.duplicates.append(index)
                first = duplicates[n]
                if first is None:
                    continue
                lane, seq = first
            self.ids[index] = make_id(shard.queue_id, shard.shard, lane, seq)
