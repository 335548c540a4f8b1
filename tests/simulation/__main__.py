"""Run simulations: `python -m tests.simulation --help`.

python -m tests.simulation                      2,000 seeds in memory, the first 500 on SQLite too,
                                                200 of a world on Cassandra and Redis,
                                                200 whole clusters
python -m tests.simulation --seed 7             one seed; what broke is shown when it fails
python -m tests.simulation --store sqlite       on one kind of store only, with any of these
python -m tests.simulation --minutes 10         fresh seeds for ten minutes

A seed that runs in memory and on SQLite must give the same history on both. A world on Cassandra is
another one: with several processes, and with what can go wrong between replicas. So is a whole
cluster: with what can go wrong between its nodes.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable
from itertools import count

from pushlane_history import event as history
from tests.simulation.run import Outcome, simulate
from tests.simulation.tables import ALL, KINDS, StoreKind

SEEDS: dict[StoreKind, int] = {"memory": 2_000, "sqlite": 500, "cassandra": 200, "cluster": 200}
LEAST_FAULTS: dict[StoreKind, int] = {"memory": 200, "sqlite": 200, "cassandra": 5, "cluster": 5}
"""Every kind of fault must strike this often in a full run, or it was not tested."""
FAULTS = (
    *(
        f"crash.{effect}.{when}"
        for effect in ("append", "settle", "page", "fetch", "schedule", "mark", "drop", "transfer")
        for when in ("before", "after")
    ),
    "crash.deliver.before", "crash.deliver.after", "crash.lost.before", "crash.remember.before",
    "crash.forget.before", "crash.published.before", "crash.done.before",
    "crash.open.before_seal", "crash.open.after_seal",
    "store.unknown_applied", "store.unknown_lost", "store.partial", "store.refused",
    "store.read_error", "store.late_write", "cache.error", "cache.wiped", "connection.lost",
    "pause.node", "clock.forward", "clock.back", "clock.drift", "consumer.slow",
    "consumer.failing", "consumer.failing_for_a_while", "consumer.stuck", "consumer.cancelled",
    "receipt.stale_or_foreign", "producer.old_numbers", "producer.asks_again",
    "crash.delete.marked",
    "crash.delete.after", "crash.hungry.before", "crash.writenote.before",
    "crash.writenote.after", "queue.deleted", "queue.made_again", "limit.reject",
    "limit.drop_oldest", "limit.dead_letter", "key.beyond_window", "redrive.queue_full",
    "redrive.too_large", "redrive.vanished", "redrive.not_found", "transfer.queue_full",
)  # fmt: skip
REPLICATED_FAULTS = (
    "ring.refused", "ring.unknown_lost", "ring.unknown_applied", "ring.unknown_partial",
    "ring.unknown_late", "ring.late_write", "ring.slow_write", "ring.lagging_replica",
    "ring.read_error", "ring.serial_error", "ring.replica_down", "ring.no_quorum",
    "ring.change_lost", "ring.change_applied", "ring.change_late", "ring.change_refused",
    "cache.error", "cache.slow", "cache.late", "cache.flushed", "cache.evicted", "cache.stale",
    "cache.ahead", "cache.outage", "kill.process", "kill.request", "kill.cache", "pause.process",
    "pause.request", "pause.cache", "stop.process", "clock.forward", "clock.back",
    "clock.ahead", "clock.behind", "clock.stamps", "producer.asks_again", "pause.deletion",
    "connection.lost", "consumer.slow", "consumer.failing", "consumer.stuck",
    "receipt.stale_or_foreign", "settle.late", "process.refused", "slot.released", "queue.deleted",
    "queue.deleted_elsewhere", "queue.changed_elsewhere",
    "queue.made_again", "queue.not_managed", "queue.deletion_cut", "limit.reject",
    "limit.drop_oldest", "limit.dead_letter", "clock.apart", "consumer.cancelled",
)  # fmt: skip

CLUSTER_FAULTS = (
    "cut.one_way", "cut.both_ways", "cut.from_all", "link.broken", "link.silent",
    "link.unreachable", "link.replaced", "session.resumed", "kill.process", "pause.process",
    "stop.process", "slot.released", "cache.outage", "ring.no_quorum", "queue.deleted",
    "session.elsewhere", "session.stolen", "settle.late", "connection.half_open", "goaway.drain",
)  # fmt: skip
MORE_FAULTS: dict[StoreKind, tuple[str, ...]] = {
    "cassandra": REPLICATED_FAULTS, "cluster": CLUSTER_FAULTS,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run just this seed, and say what happened")
    parser.add_argument("--seeds", type=int, help="how many seeds, from 0 on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for this long instead")
    parser.add_argument("--events", type=int, help="events before the calm")
    parser.add_argument("--store", choices=ALL, help="on this kind of store only")
    parser.add_argument("--history", help="with --seed: write the history to this file")
    arguments = parser.parse_args()
    kinds = ALL if arguments.store is None else (arguments.store,)
    logging.disable(logging.CRITICAL)  # thousands of warnings, of faults that were planned
    if arguments.seed is not None:
        kind = arguments.store or KINDS[0]
        return _one(arguments.seed, arguments.events, arguments.history, kind)
    runs = Runs(arguments.events)
    fresh = random.SystemRandom().randrange(1 << 40)
    for kind in kinds:
        if arguments.minutes is not None:
            runs.run(kind, count(fresh), 60 * arguments.minutes / len(kinds))
        else:
            seeds = arguments.seeds or SEEDS[kind]
            runs.run(kind, range(arguments.first, arguments.first + seeds))
    return 1 if runs.failed else 0


def _one(seed: int, events: int | None, path: str | None, kind: StoreKind) -> int:
    outcome, world = simulate(seed, events, path is not None, kind)
    faults = sum(outcome.faults.values())
    print(f"seed {seed} on {kind}: {outcome.events} events, {faults} faults")
    if path is not None:
        assert world.history is not None
        with open(path, "wb") as file:
            history.write(file, world.history)
    if outcome.broken:
        print(outcome.text)
        return 1
    print("no violation")
    return 0


def _job(job: tuple[int, int | None, StoreKind]) -> Outcome:
    seed, events, kind = job
    logging.disable(logging.CRITICAL)
    return simulate(seed, events, store=kind)[0]


class Runs:
    """Many seeds, on one kind of store after the other."""

    def __init__(self, events: int | None) -> None:
        self._events = events
        self._digests: dict[int, int] = {}
        """Of every seed's history on the first kind of store, where there are two."""
        self.failed = False

    def run(self, kind: StoreKind, seeds: Iterable[int], seconds: float | None = None) -> None:
        began = time.monotonic()
        done = happened = broken = 0
        faults: dict[str, int] = {}

        jobs = ((seed, self._events, kind) for seed in seeds)
        with multiprocessing.Pool() as pool:
            for outcome in pool.imap_unordered(_job, jobs, 4):
                if seconds is not None and time.monotonic() - began > seconds:
                    break  # thousands of jobs wait in the pool's pipe: they end with it
                done += 1
                happened += outcome.events
                for fault, times in outcome.faults.items():
                    faults[fault] = faults.get(fault, 0) + times
                known = outcome.digest
                if kind in KINDS:
                    known = self._digests.setdefault(outcome.seed, outcome.digest)
                broken += self._tell(outcome, kind, known)
                if done % (250 if kind in KINDS else 50) == 0:
                    print(f"{done} seeds, {happened} events, {broken} broken", flush=True)
        _print_faults(faults)
        took = time.monotonic() - began
        rate = done / max(took, 0.1)
        print(f"{done} seeds on {kind}, {happened} events, {took:.0f} s, {rate:.1f} seeds/s")
        wanted = FAULTS if kind in KINDS else MORE_FAULTS[kind]
        rare = [fault for fault in wanted if faults.get(fault, 0) < LEAST_FAULTS[kind]]
        if done >= SEEDS[_largest(kind)] and rare:
            print(f"too rare to count as tested: {', '.join(rare)}")
            self.failed = True
        print(f"{done - broken} passed, {broken} failed")

    def _tell(self, outcome: Outcome, kind: StoreKind, known: int) -> bool:
        """Say what is wrong with an outcome, if anything is."""
        if outcome.broken:
            print(f"\nseed {outcome.seed}: {outcome.broken}\n{outcome.text}")
        elif outcome.digest != known:
            print(f"\nseed {outcome.seed}: another history than on {KINDS[0]}")
        else:
            return False
        print(f"again: make sim SEED={outcome.seed} STORE={kind}", flush=True)
        self.failed = True
        return True


def _largest(kind: StoreKind) -> StoreKind:
    """Of the kinds with the same faults, the one that has enough seeds to meet them all."""
    return KINDS[0] if kind in KINDS else kind


def _print_faults(faults: dict[str, int]) -> None:
    print(f"\n{'fault':28s} times")
    for fault, times in sorted(faults.items()):
        print(f"{fault:28s} {times:6d}")


if __name__ == "__main__":
    sys.exit(main())
