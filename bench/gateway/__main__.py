"""python -m bench.gateway: measure the gateway, beside the other systems that are installed.

    --quick             a short run, to see that everything works
    --only NAME …       some systems or measurements: pushlane, nats, …, idle, fairness, …
    --install-peers     first install NATS, RabbitMQ and Redis where they are missing

Only a whole run (neither --quick nor --only) is kept in docs/. A system that is not installed, or
fails, is left out, and that is said; but when Pushlane itself fails, so does the run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from bench.gateway import machine, node
from bench.gateway.install import install_peers
from bench.gateway.judge import judge
from bench.gateway.measure import OWN, compare
from bench.gateway.plan import QUICK, WHOLE, Plan
from bench.gateway.process import DidNotStart, raise_limits
from bench.gateway.result import Machine, Measured, Own, Result
from bench.gateway.showing import plot, text, update, update_short
from bench.gateway.systems import PUSHLANE, SYSTEMS, System

DOCS = machine.ROOT / "docs"
SPARE = Path(sys.prefix) / "bench"
"""Where the results of partial runs go, and stores while they are measured; git ignores it."""


def main() -> None:
    names = [each.name for each in SYSTEMS] + list(OWN)
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME")
    parser.add_argument("--install-peers", action="store_true")
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure")
    args = parser.parse_args()
    lacking = node.missing()
    if lacking is not None:
        sys.exit(f"bench.gateway needs {lacking}: its load generator runs on it")
    if args.install_peers:
        install_peers()
    node.install()
    raise_limits()
    SPARE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stores-", dir=args.data or SPARE) as place:
        result = run(QUICK if args.quick else WHOLE, args.only or names, Path(place).resolve())
    print("\n" + text(result))
    whole = not args.quick and args.only is None and not result.failed
    keep(result, DOCS if whole else SPARE)
    if result.failed:
        sys.exit("FAILED: " + ", ".join(result.failed))


def run(plan: Plan, wanted: list[str], place: Path) -> Result:
    before = machine.load()
    missing: list[str] = []
    failed: list[str] = []
    systems = [each for each in SYSTEMS if each.name in wanted]
    for each in systems:
        lacks = each.missing()
        if lacks is not None:
            missing.append(f"{each.label}: there is no {lacks}")
    for reason in missing:
        print(f"WITHOUT {reason}")
    there = [each for each in systems if each.missing() is None]
    measured = side_by_side(there, plan, place, missing, failed)
    own = Own()
    for name, measurement in OWN.items():
        if name in wanted:
            attempt(name, failed, partial(measurement, own, plan, place))
    after = machine.load()
    shares = machine.shares(before, after)
    where = Machine(machine.shape(), before.averages, after.averages, *shares)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    result = Result(machine.commit(), today, plan is QUICK, where, measured, own, missing, failed)
    result.checks = judge(result)
    return result


def side_by_side(
    systems: list[System], plan: Plan, place: Path, missing: list[str], failed: list[str]
) -> list[Measured]:
    """In turns, so that what else happens on the machine meets all of them."""
    measured = {each.name: Measured(each.name, each.label, each.fsync) for each in systems}
    for turn in range(plan.rounds):
        for each in systems:
            what = f"{each.label}, round {turn + 1} of {plan.rounds}"
            faults = failed if each is PUSHLANE else missing
            attempt(what, faults, partial(compare, each, measured[each.name], plan, place))
    return list(measured.values())


def attempt(what: str, faults: list[str], measurement: Callable[[], None]) -> None:
    """A measurement that fails is left out, and that is said."""
    print(f"… {what}", flush=True)
    try:
        measurement()
    except (DidNotStart, node.LoadFailed) as error:
        print(f"FAILED: {what}: {error}", file=sys.stderr)
        faults.append(f"{what}: it failed")


def keep(result: Result, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / "benchmarks.json", folder / "benchmarks.png"
    data.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    if any(each.whole for each in result.systems):
        plot(result, picture)
    if folder == DOCS:
        update(DOCS / "benchmarks.md", result, picture.name, data.name)
        update_short(DOCS.parent / "README.md", result)
    print(f"\nwritten to {os.path.relpath(data)}")


if __name__ == "__main__":
    main()
