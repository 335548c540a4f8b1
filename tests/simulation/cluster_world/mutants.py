"""Bugs planted in what makes nodes a cluster: fences, routes, repeats, credit, sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.callers.feed import UNSHARED, Feed
from pushlane_dispatcher.callers.part import Part
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.remote.settles import Together
from pushlane_dispatcher.cluster.remote.sub import RemoteSub
from pushlane_dispatcher.cluster.repeats import Repeats
from pushlane_dispatcher.core import opening
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.snapshot import Snapshot, lease_runs
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.sender import Sender
from pushlane_dispatcher.shard.shards import Shards
from pushlane_gateway.auth.identity import Identity
from pushlane_leases.interface import LeaseRun
from pushlane_storage.cassandra.membership import Membership
from pushlane_storage.member import PROCESS_BYTES
from tests.simulation.mutants import Planter
from tests.simulation.replicated import mutants as replicated
from tests.simulation.replicated.mutants import LOST, TWICE, Patches, careless, nothing

plant = Planter("cluster")


def _no_less_than_nothing(feed: Feed) -> int:
    total = feed._shares.total
    return max(0, total - sum(part.most for part in feed._parts)) if feed.shared else UNSHARED


def _of_owners(name: str) -> Patches:
    return next(each for each in replicated.plant.mutants if each.name == name).patches


@plant(*LOST, *TWICE, "audit", "exception", "fence", "transfer")
def two_nodes_with_one_nonce() -> Patches:
    make: Any = Membership.__init__

    def same(self: Membership, *args: Any) -> None:
        *others, randbytes, tasks = args

        def drawn(count: int) -> bytes:
            found: bytes = randbytes(count)
            return bytes([found[0] % 2]) * count if count == PROCESS_BYTES else found

        make(self, *others, drawn, tasks)

    return [(Membership, "__init__", same)]


@plant(*LOST, *TWICE, "transfer", seed=22)
def a_claim_without_a_fence() -> Patches:
    return _of_owners("a_slot_is_claimed_without_a_fence")


@plant(*LOST, *TWICE, "key_order", "transfer", seed=139)
def a_seal_before_the_fence() -> Patches:
    return _of_owners("the_seal_says_what_was_there_before_the_claim")


@plant("phantom", "unacked_unknown", seed=5)
def a_forwarded_publish_is_repeated_without_a_number() -> Patches:
    def bold(self: Repeats, sent: Any, row: Any) -> bool:
        return True

    return [(Repeats, "_may_repeat", bold)]


@plant("grant_after_ack", "confirmed_settle_lost", "stale_settle", "lost")
def a_settle_over_a_stale_route_counts() -> Patches:
    """Its shard is gone, and its client hears that all is well."""
    told = Together.told

    def hopeful(self: Together, answer: frames.Settled | PushlaneError) -> None:
        if isinstance(answer, PushlaneError):
            for request in self.requests:
                request.answer(SettleTicket(), None)
        else:
            told(self, answer)

    return [(Together, "told", hopeful)]


@plant("bounds")
def a_credit_counts_twice_when_a_shard_moves() -> Patches:
    """What its client has of the last owner is forgotten."""

    def forgetful(self: Part) -> int:
        return self.showing + self.waiting if self.up else 0

    return [(Part, "used", property(forgetful))]


@plant("bounds", seed=71)
def a_share_is_raised_beside_one_that_was_not_given_back() -> Patches:
    """What a shard holds may be raised to, whatever the others may still use."""
    return [(Feed, "_room", property(_no_less_than_nothing))]


@plant("bounds", seed=71)
def what_comes_again_needs_no_permit() -> Patches:
    return [(Feed, "fits", property(lambda _: True))]


@plant("bounds", seed=462)
def what_is_on_its_way_counts_as_what_the_client_has() -> Patches:
    """A shard ends before its client has heard what it got and what it lost."""

    def nothing_waits(_: Sender) -> dict[Subscription, set[int]]:
        return {}

    return [(Sender, "unheard", nothing_waits)]


@plant(
    "deleted", "phantom", "lost", "audit", "exception", seed=35, among=lambda world: world.annex
)  # fmt: skip
def a_delete_misses_a_shard() -> Patches:
    """The first one is closed everywhere; the others go on."""
    stop_queue = Shards.stop_queue

    def once(self: Shards, row: Any, reason: Any) -> None:
        if row.config.shards == 1:
            stop_queue(self, row, reason)

    return [
        (Shards, "owning_last", careless),
        (Shards, "confirm_slots", nothing),
        (Shards, "close_queue", nothing),
        (Shards, "stop_queue", once),
    ]


@plant(
    *LOST,
    *TWICE,
    "stale_settle",
    "bounds",
    "attempts",
    "dead_cause",
    "stalled",
    "drain",
    "audit",
    "exception",
    seed=2,
)
def frames_of_a_superseded_holder_are_accepted() -> Patches:
    """Of its gateway as well as of its client: what it settles counts."""
    settle = Shard.settle

    def trusting(self: Shard, subscription: Subscription, generation: int, *rest: Any) -> None:
        settle(self, subscription, subscription.generation, *rest)

    def anybodys(self: ShardRunner, prefix: str, sink: Any) -> Subscription | None:
        found = self._subscriptions.get(prefix)
        if found is None or self._engine.stopped_by is not None:
            return None
        self.used_at = self._now()
        self._engine.wake()
        return found

    hear = RemoteSub.hear

    def credulous(self: RemoteSub, told: Any) -> None:
        if self.up and isinstance(told, frames.Deliver | frames.Lost):
            self._tell(told)
        else:
            hear(self, told)

    return [
        (Shard, "settle", trusting),
        (ShardRunner, "_held_by", anybodys),
        (RemoteSub, "hear", credulous),
    ]


@plant("audit", seed=22)
def a_hand_over_forgets_reservations() -> Patches:
    def started(snapshot: Snapshot) -> Iterator[LeaseRun]:
        return (run for run in lease_runs(snapshot) if run.started)

    return [(opening, "lease_runs", started)]


@plant("audit")
def a_session_is_resumed_by_another_identity() -> Patches:
    """Whoever knows its id."""

    def trusting(self: Identity, other: Identity) -> bool:
        return True

    return [(Identity, "is_same", trusting)]
