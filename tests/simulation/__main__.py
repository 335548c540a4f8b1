"""Run simulations: `python -m tests.simulation --help`.

python -m tests.simulation                      2,000 seeds, on every core
python -m tests.simulation --seed 7             one seed; its history is shown when it fails
python -m tests.simulation --minutes 10         fresh seeds for ten minutes
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from itertools import count

from pushlane_storage.history import event as history
from tests.simulation.run import EVENTS, Outcome, simulate

SEEDS = 2_000
LEAST_FAULTS = 200
"""Every kind of fault must strike this often in a full run, or it was not tested."""
KINDS = (
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
    "consumer.failing", "consumer.stuck", "receipt.stale_or_foreign",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run just this seed, and say what happened")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds, from 0 on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, help="run fresh seeds for this long instead")
    parser.add_argument("--events", type=int, default=EVENTS, help="events before the calm")
    parser.add_argument("--history", help="with --seed: write the history to this file")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.events, arguments.history)
    if arguments.minutes is not None:
        first = random.SystemRandom().randrange(1 << 40)
        return _many(count(first), arguments.events, arguments.minutes * 60)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _many(iter(seeds), arguments.events, None, arguments.seeds)


def _one(seed: int, events: int, path: str | None) -> int:
    outcome, world = simulate(seed, events, keep=path is not None)
    print(f"seed {seed}: {outcome.events} events, {sum(outcome.faults.values())} faults")
    if path is not None:
        assert world.history is not None
        with open(path, "wb") as file:
            history.write(file, world.history)
    if outcome.broken:
        print(outcome.text)
        return 1
    print("no violation")
    return 0


def _job(job: tuple[int, int]) -> Outcome:
    return simulate(*job)[0]


def _many(seeds: Iterator[int], events: int, seconds: float | None, total: int = 0) -> int:
    began = time.monotonic()
    done = happened = 0
    faults: dict[str, int] = {}
    broken: list[Outcome] = []

    def jobs() -> Iterator[tuple[int, int]]:
        for seed in seeds:
            if seconds is not None and time.monotonic() - began > seconds:
                return
            yield seed, events

    with multiprocessing.Pool() as pool:
        for outcome in pool.imap_unordered(_job, jobs(), 4):
            done += 1
            happened += outcome.events
            for kind, times in outcome.faults.items():
                faults[kind] = faults.get(kind, 0) + times
            if outcome.broken:
                broken.append(outcome)
                print(f"\nseed {outcome.seed}: {outcome.broken}\n{outcome.text}")
                print(f"again: make sim SEED={outcome.seed}", flush=True)
            if done % 250 == 0:
                print(f"{done} seeds, {happened} events, {len(broken)} broken", flush=True)
    print(f"\n{'fault':28s} times")
    for kind, times in sorted(faults.items()):
        print(f"{kind:28s} {times:6d}")
    print(f"{done} seeds, {happened} events, {time.monotonic() - began:.0f} s")
    rare = [kind for kind in KINDS if faults.get(kind, 0) < LEAST_FAULTS]
    if total >= SEEDS and rare:
        print(f"too rare to count as tested: {', '.join(rare)}")
        return 1
    print(f"{done - len(broken)} passed, {len(broken)} failed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
