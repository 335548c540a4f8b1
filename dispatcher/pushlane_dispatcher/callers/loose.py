"""Loose receipts: those that somebody brings who holds no subscription for them.

They are good where nobody else holds them: what a request received, and what a crash cut off from
its session, which only the lease cache remembered. The shard decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun, count
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.subscription import ANYBODY
from pushlane_dispatcher.queues.route import marked_shard
from pushlane_dispatcher.shard.port import ShardPort

Ports = Sequence[ShardPort | None]
"""Of all shards; None: that one has stopped."""


def settle_loose(
    shards: Ports,
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
        number = marked_shard(prefix)
        asked = shards if number is None else shards[number : number + 1]
        gather.more()
        _ask([shard for shard in asked if shard is not None], act, own, gather, silently)


def _ask(
    shards: list[ShardPort], act: Act, receipts: list[ReceiptRun], gather: Gather, silently: bool
) -> None:
    """The shard that the prefix names; where it names none, one after the other until one has
    some of them."""
    if not shards:
        gather(SettleTicket(lost=receipts), None)
        return

    def answered(ticket: SettleTicket, error: PushlaneError | None) -> None:
        if len(shards) > 1 and error is None and count(ticket.lost) == count(receipts):
            _ask(shards[1:], act, receipts, gather, silently)
        else:
            gather(ticket, error)

    shards[0].settle(receipts[0][0], ANYBODY, act, receipts, answered, silently=silently)
