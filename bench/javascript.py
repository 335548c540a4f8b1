"""The JavaScript SDK beside raw frames and beside nats.js over WebSocket, on the same work.

    python -m bench.javascript [--rounds N] [--seconds S]

One Node process publishes messages of 200 bytes, 256 in flight, and consumes and acks them, one
call a message. The three take turns in short rounds, so whatever else the machine does meanwhile
hits all of them; each round compares only within itself, and the median of the rounds counts.
Servers run on one core and the load on another, where there are two. Exits with 1 when a bar is
missed: 60 % of the raw frames' rate, and twice that of nats.js.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.gateway import node
from bench.gateway.install import install_peers
from bench.gateway.machine import load, shares
from bench.gateway.systems import Target, nats, nats_missing, pushlane

OF_RAW = 0.6
TIMES_NATS = 2.0
RAW, SDK, NATS = "raw frames", "SDK", "nats.js"

Rates = dict[str, float]


def measure(targets: dict[str, Target], turn: int, seconds: float) -> Rates:
    """One round: each of them for a while."""
    rates = {}
    for name, target in targets.items():
        found = node.measure(
            target, "throughput", f"{target.adapter}{turn}", producers=1, consumers=1, window=256,
            credit=256, warm_s=seconds / 4, run_s=seconds, drain_s=60,
        )  # fmt: skip
        assert not found["missing"], f"{name}: {found['missing']} messages are missing"
        rates[name] = found["rate"]
    return rates


def run(rounds: int, seconds: float) -> list[Rates]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pushlane-bench-")))
        (folder / "pushlane").mkdir()
        (folder / "nats").mkdir()
        ours = stack.enter_context(pushlane(folder / "pushlane"))
        targets = {
            RAW: ours,
            SDK: replace(ours, adapter="pushlane_sdk"),
            NATS: stack.enter_context(nats(None)(folder / "nats")),
        }
        return [show(measure(targets, turn, seconds)) for turn in range(rounds)]


def show(rates: Rates) -> Rates:
    print("   ".join(f"{name} {rate:7,.0f}/s" for name, rate in rates.items()), flush=True)
    return rates


def judge(rounds: list[Rates]) -> bool:
    """Whether both bars are met; says so."""
    of_raw = median(rates[SDK] / rates[RAW] for rates in rounds)
    times_nats = median(rates[SDK] / rates[NATS] for rates in rounds)
    print(f"SDK: {of_raw:.0%} of raw frames (bar {OF_RAW:.0%}), ", end="")
    print(f"{times_nats:.2f} x nats.js (bar {TIMES_NATS:.0f})")
    return of_raw >= OF_RAW and times_nats >= TIMES_NATS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each in each round")
    options = parser.parse_args()
    if nats_missing() is not None:
        install_peers()
    if missing := node.missing() or nats_missing():
        sys.exit(f"missing: {missing}")
    node.install()
    before = load()
    is_met = judge(run(options.rounds, options.seconds))
    busy, _ = shares(before, load())
    print(f"the machine was busy for {busy:.0%} of the time, with this")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
