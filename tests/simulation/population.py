"""What every world has, whatever serves it: its queues, their clients, and what operators do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.departures import REDRIVEN
from pushlane_dispatcher.core.effects import SettleTicket, Transfer
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.shard import Shard
from pushlane_history import event as history
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.redriving import redrive_first
from tests.simulation.audit import audit
from tests.simulation.clients import Client, Producer
from tests.simulation.consumers import Consumer
from tests.simulation.profile import LARGE_STEPS, SMALL_STEPS
from tests.simulation.serving import Runner
from tests.simulation.world import World

SMALL_BYTES = 25
"""Some bodies are longer, so that a queue may refuse them."""
LONG_WINDOW_MS = 600_000
"""A dedup window longer than a run with what its clocks are wrong by: a repeat is within it."""
SHORT_WINDOW_MS = 4_000
"""One that ends during a run, so that drained buckets are dropped. Only with clocks that are right,
or so wrong that it is noticed: one that is followed may be wrong by more than the window."""

QUEUES = ("q.dead", "q")
"""The target of transfers is opened first."""
ANNEX = "r"
"""A queue that comes and goes, in some worlds: dead letters are redriven to it, too."""
NOBODY = "gone"
"""A queue that there never is; somebody tries to redrive to it all the same."""
TENANT = "t"

BOUNDS = Bounds(
    window_messages=24,
    window_bytes=4_000,
    positions=12,
    key_positions=4,
    delayed=4,
    dropped_messages=5,
    page_messages=8,
    segment_messages=6,
    segment_bytes=1_200,
    flushes=3,
    pending_messages=60,
    pending_bytes=20_000,
    bucket_ms=4_000,
    bucket_messages=15,
    bucket_bytes=3_000,
    checkpoint_rows=4,
    producer_seqs=16,
    producer_runs=60,
    kept_runs=20,
    note_ms=500,
    settled_runs=64,
    transfers=4,
    leaving=50,
    transfer_retry_ms=100,
    transfer_retry_max_ms=400,
    redrive_wait_ms=2_000,
    parked_ms=1_000,
    fetch_messages=4,
    horizon_ms=2_000,
    steal_ms=300,
    expiry_sweep_ms=100,
)


class Population:
    def __init__(self, world: World, bounds: Bounds, short_window: float) -> None:
        """`short_window`: how likely it is that dedup windows end during a run."""
        self.world = world
        self.bounds = bounds
        rng, profile = world.rng, world.profile
        self.names: dict[str, str] = {}
        """By queue id: what the history calls it, its label. All that ever were."""
        self.labels: dict[str, str] = {}
        """By name: the label of the queue that has it, or had it last."""
        self.leaving: dict[str, tuple[str, str]] = {}
        """By message: why, and the label of the queue that had the target's name then."""
        self.short_window = rng.random() < short_window
        self.steps = LARGE_STEPS if self.short_window else SMALL_STEPS + LARGE_STEPS
        self.configs = draw_configs(rng, self.short_window)
        for queue, shards in ("q", profile.shards), ("q.dead", profile.dead_shards):
            self.configs[queue] = msgspec.structs.replace(self.configs[queue], shards=shards)
        self.keyed = rng.choice((0.1, 0.35, 0.8))
        """How many of the messages have a key."""
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._crowded: set[object] = set()
        """Shards in which a key was seen to have more than fits."""

    def settle_in(self, home: Any) -> None:
        """Clients come, who will look for their queues there."""
        rng, profile = self.world.rng, self.world.profile
        self.producers += [Producer(home, f"p{i}") for i in range(rng.choice((1, 2, 3)))]
        self.consumers += [
            Consumer(home, f"c{i}", "q", manner) for i, manner in enumerate(profile.manners)
        ]
        self.consumers.append(Consumer(home, "d0", "q.dead"))
        if profile.annex:
            self.configs[ANNEX] = draw_annex(rng, self.configs["q"])
            self.producers.append(Producer(home, "pr", ANNEX))
            self.consumers.append(Consumer(home, "r0", ANNEX))

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    def name(self, row: QueueRow) -> None:
        """A queue is new: it gets a label."""
        again = sum(label.partition("~")[0] == row.name for label in self.names.values())
        label = f"{row.name}~{again}" if again else row.name
        self.names[row.id] = self.labels[row.name] = label
        config = row.config
        self.world.record(
            history.QueueSet(
                self.world.now,
                label,
                config.max_attempts,
                config.max_deliveries,
                config.dedup_window_ms,
                config.overflow,
                config.dead_letter,
            )
        )

    # Operators

    def manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        """Do something to all shards of a queue, if it is served."""
        raise NotImplementedError

    def configure(self, queue: str, **changes: Any) -> None:
        raise NotImplementedError

    def delete(self, queue: str) -> None:
        raise NotImplementedError

    def make_again(self, queue: str) -> None:
        raise NotImplementedError

    def purge(self) -> None:
        self.world.record(history.Allow(self.world.now, "q", "purged"))
        self.manage("q", lambda shard, now: shard.purge(SettleTicket(), now))

    def redrive(self) -> None:
        """Dead letters go back, or what waits goes elsewhere: perhaps to where there is no room."""
        source, other = self.world.rng.choice((("q.dead", "q"), ("q", "q.dead")))
        annex = ANNEX if ANNEX in self.configs else other
        self.send(source, self.world.rng.choice((other, annex, annex, NOBODY)))

    def send(self, source: str, to: str) -> None:
        """Redrive what is first in line."""
        self.world.record(history.Allow(self.world.now, source, "redriven"))
        self.manage(source, lambda shard, now: redrive_first(shard, 12, to, now))

    def vanish(self) -> None:
        """The annex goes, with messages on their way to it, and another one comes."""
        self.send(self.world.rng.choice(QUEUES), ANNEX)
        self.delete(ANNEX)
        self.world.after(self.world.rng.randrange(50, 3_000), self.make_again, ANNEX)

    def change_limits(self) -> None:
        limit = self.world.rng.choice((5, 20, 60, 1_000))
        queue = self.world.rng.choice(("q", "q", "q.dead"))
        self.world.fault(f"limit.{self.configs[queue].overflow}")
        self.configure(queue, max_messages=limit)

    # Looking

    def look_at(self, runner: Runner) -> None:
        """Check what must hold inside of a shard, and note how near its bounds are."""
        shard = runner.shard
        audit(shard)
        name, value, limit = nearest_bound(shard, self.bounds)
        self.world.record(history.Bound(self.world.now, f"{runner.label}.{name}", value, limit))
        if shard.window.keys.passed and (shard.key, shard.epoch) not in self._crowded:
            self._crowded.add((shard.key, shard.epoch))
            self.world.fault("key.beyond_window")

    def refused(self, transfer: Transfer, errors: Sequence[PushlaneError | None]) -> None:
        """Some of these messages did not get to where they should."""
        for entry, error in zip(transfer.entries, errors, strict=True):
            if error is not None:
                way = "redrive" if entry.cause == REDRIVEN else "transfer"
                vanished = error.code == "not_found" and transfer.to != NOBODY
                self.world.fault(f"{way}.{'vanished' if vanished else error.code}")
                return


def draw_configs(rng: Random, short_window: bool) -> dict[str, QueueConfig]:
    return {
        "q": QueueConfig(
            max_attempts=rng.choice((1, 3, 5)),
            max_deliveries=rng.choice((2, 5, 20)),
            reserve_ms=rng.choice((800, 3_000)),
            backoff_base_ms=50,
            backoff_max_ms=1_000,
            consumer_backoff_base_ms=20,
            consumer_backoff_max_ms=300,
            dedup_window_ms=SHORT_WINDOW_MS if short_window else LONG_WINDOW_MS,
            max_messages=rng.choice((60, 1_000, 1_000)),
            overflow=rng.choice(("reject", "drop_oldest", "dead_letter")),
        ),
        "q.dead": QueueConfig(
            max_attempts=1_000_000, max_deliveries=1_000_000, reserve_ms=2_000,
            backoff_base_ms=50,
            backoff_max_ms=500, max_messages=rng.choice((30, 1_000, 1_000)),
            consumer_backoff_base_ms=20, consumer_backoff_max_ms=300,
            dead_letter="",
        ),
    }  # fmt: skip


def draw_annex(rng: Random, like: QueueConfig) -> QueueConfig:
    return msgspec.structs.replace(
        like,
        shards=rng.choice((1, 2)),
        max_messages=rng.choice((8, 1_000)),
        max_message_bytes=rng.choice((SMALL_BYTES, SMALL_BYTES, 1_000)),
        overflow="reject",
        dead_letter="q.dead",
        paused=False,
    )


def nearest_bound(shard: Shard, bounds: Bounds) -> tuple[str, int, int]:
    """Of all that is bounded what is nearest to its limit."""
    # Each lane may have one page under way when the window fills, and bodies are fetched singly.
    under_way = 4 * (bounds.page_messages + bounds.segment_messages + bounds.fetch_messages)
    bounded = [
        ("window", shard.window.bodies.resident, bounds.window_messages + under_way),
        # What could not leave is back among those of its key, whatever their number.
        ("positions", shard.window.keys.kept, bounds.positions + bounds.leaving),
        ("delayed", shard.life.counts[State.DELAYED], bounds.delayed),
        ("pending", shard.journal.pending_messages, bounds.pending_messages),
        ("effects", len(shard._effects), 100),
    ]
    return max(bounded, key=lambda item: item[1] / item[2])
