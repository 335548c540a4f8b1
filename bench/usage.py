"""What counting usage costs: CPU time of the server for a message, with and without it.

    python -m bench.usage            ten pairs, about three minutes
    python -m bench.usage --quick    one short pair, to see that it works

Pairs are interleaved, and the one without goes first in every other pair, because machines drift.
Usage is flushed every second here, ten times as often as by default.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.gateway import node
from bench.gateway.measure import numbers, served
from bench.gateway.plan import QUICK, Plan
from bench.gateway.result import cpu_per_100k
from bench.gateway.systems import System, Target, nothing, serving

PAIRS = 10
PLAN = Plan(warm_s=0.5, run_s=3.0)
LIMIT = 1.05
"""The bar: less than 5 % more."""
FLUSH_MS = 1_000
SETTINGS = "[dispatcher]\nusage = {usage}\nusage_flush_ms = {flush}\n"


def server(counting: bool) -> System:
    @contextmanager
    def start(folder: Path) -> Iterator[Target]:
        config = folder / "pushlane.toml"
        config.write_text(SETTINGS.format(usage=str(counting).lower(), flush=FLUSH_MS))
        with serving(folder, "--data", str(folder / "data"), "--config", str(config)) as target:
            yield target

    return System("pushlane", "Pushlane", True, start, nothing)


def cost(counting: bool, plan: Plan, place: Path) -> float:
    """CPU seconds of the server for 100,000 messages."""
    with served(server(counting), place) as target:
        found = node.measure(
            target, "throughput", "flow", producers=1, consumers=1, window=plan.window,
            credit=plan.credit, warm_s=plan.warm_s, run_s=plan.run_s, drain_s=plan.drain_s,
        )  # fmt: skip
        return cpu_per_100k([numbers(found)], "server")


def ratios(pairs: int, plan: Plan, place: Path) -> Iterator[float]:
    """How much more it costs, pair by pair."""
    for pair in range(pairs):
        found = {}
        for counting in (True, False) if pair % 2 else (False, True):
            found[counting] = cost(counting, plan, place)
        print(f"  pair {pair + 1}: {found[False]:.3f} without, {found[True]:.3f} with", flush=True)
        yield found[True] / found[False]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.usage")
    parser.add_argument("--quick", action="store_true", help="one short pair")
    quick = parser.parse_args(arguments).quick
    node.install()
    print("CPU seconds of the server for 100,000 messages")
    with tempfile.TemporaryDirectory(prefix="pushlane-usage-") as folder:
        found = list(ratios(1 if quick else PAIRS, QUICK if quick else PLAN, Path(folder)))
    ratio = statistics.median(found)
    verdict = "reached" if ratio < LIMIT else "NOT REACHED"
    print(f"  median ratio {ratio:.3f}   below {LIMIT}: {verdict}")
    return 0 if quick or ratio < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
