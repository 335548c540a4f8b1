"""Loose receipts: those that somebody brings who holds no subscription for them.

They are good where nobody else holds them: what a request received, and what a crash cut off from
its session, which only the lease cache remembered. The shard decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.queues.route import marked_shard
from pushlane_dispatcher.shard.runner import ShardRunner

Runners = Sequence[ShardRunner | None]
"""Of all shards; None: that one has stopped."""


def settle_loose(
    runners: Runners,
    act: Act,
    receipts: list[ReceiptRun],
    gather: Gather,
    *,
    silently: bool = False,
) -> None:
    """Settle what each shard has of these; the rest is lost."""
    by_prefix: dict[str, list[ReceiptRun]] = {}
    for run in receipts:
        by_prefix.setdefault(run[0], []).append(run)
    for prefix, own in by_prefix.items():
        runner = _find(runners, prefix)
        if runner is None:
            gather.lost += own
            continue
        gather.more()
        try:
            ticket = runner.settle_loose(prefix, act, own, None if silently else gather)
        except PushlaneError as error:
            gather.one_less(error)
        else:
            if silently:
                gather(ticket, None)


def _find(runners: Runners, prefix: str) -> ShardRunner | None:
    """The shard that a prefix names; where it names none, the one that knows it."""
    shard = marked_shard(prefix)
    if shard is not None:
        return runners[shard] if shard < len(runners) else None
    return next((each for each in runners if each is not None and each.knows(prefix)), None)
