"""The measurements: which numbers go to the load generator for each, and on what server."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.gateway import node
from bench.gateway.plan import Plan
from bench.gateway.process import CLIENT_CORE, pinned
from bench.gateway.result import Measured, Numbers, Own
from bench.gateway.systems import PUSHLANE, System, Target


@contextmanager
def served(system: System, place: Path) -> Iterator[Target]:
    """A fresh server with an empty store. When the load fails, its last words are added."""
    with tempfile.TemporaryDirectory(prefix=f"{system.name}-", dir=place) as folder:
        try:
            with system.start(Path(folder)) as target:
                yield target
        except node.LoadFailed as error:
            said = (Path(folder) / "output.txt").read_text(errors="replace")[-2000:]
            raise node.LoadFailed(f"{error}\nthe server said:\n{said}") from error


def numbers(found: object) -> Numbers:
    """Faults are the load generator's to find; a message that is lost or doubled is ours."""
    made = msgspec.convert(found, Numbers, strict=False)
    if made.missing or made.again:
        raise node.LoadFailed(f"{made.missing} messages are missing, {made.again} came twice")
    return made


def compare(system: System, measured: Measured, plan: Plan, place: Path) -> None:
    """One round of what all systems are measured by."""
    flow = {
        "window": plan.window, "credit": plan.credit, "warm_s": plan.warm_s,
        "run_s": plan.run_s, "drain_s": plan.drain_s,
    }  # fmt: skip
    with served(system, place) as target:
        for rounds, count in ((measured.one, 1), (measured.four, 4)):
            found = node.measure(
                target, "throughput", f"flow{count}", producers=count, consumers=count, **flow
            )
            rounds.append(numbers(found))
        flow["run_s"] = plan.paced_s
        measured.paced.append(
            numbers(node.measure(target, "latency", "paced", rate=plan.rate, **flow))
        )


def idle(own: Own, plan: Plan, place: Path) -> None:
    """On a fresh server: memory that was used before and is free now would hide the rest."""
    with served(PUSHLANE, place) as target:
        own.idle = numbers(
            node.measure(
                target, "idle", "idle", count=plan.idle, before=plan.idle_before,
                settle_s=1.0, credit=plan.credit,
            )
        )  # fmt: skip


def fairness(own: Own, plan: Plan, place: Path) -> None:
    with served(PUSHLANE, place) as target:
        for turn in range(plan.rounds):
            found = node.measure(
                target, "fairness", f"fair{turn}", producers=4, consumers=plan.fair,
                window=plan.window, credit=plan.credit, warm_s=plan.warm_s, run_s=plan.run_s,
            )  # fmt: skip
            own.fairness.append(numbers(found))


def stuck(own: Own, plan: Plan, place: Path) -> None:
    with served(PUSHLANE, place) as target:
        found = node.measure(
            target, "stuck", "crowd", producers=4, consumers=plan.crowd, window=plan.window,
            credit=plan.credit, warm_s=plan.warm_s, run_s=plan.stuck_s,
            rounds=plan.stuck_rounds, clog=plan.clog,
        )  # fmt: skip
    own.stuck += msgspec.convert(found["rounds"], list[Numbers], strict=False)


def backlog(own: Own, plan: Plan, place: Path) -> None:
    with served(PUSHLANE, place) as target:
        own.backlog = numbers(
            node.measure(
                target, "backlog", "backlog", producers=4, window=plan.window, credit=plan.credit,
                count=plan.backlog, drain_s=10 * plan.drain_s,
            )
        )  # fmt: skip


def sdk(own: Own, plan: Plan, place: Path) -> None:
    with served(PUSHLANE, place) as target:
        for turn in range(plan.rounds):
            command = [sys.executable, "-m", "bench.gateway.sdk", target.url, f"sdk{turn}"]
            command += [str(plan.warm_s), str(plan.run_s)]
            done = subprocess.run(
                pinned(CLIENT_CORE, command), capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise node.LoadFailed(f"sdk: {done.stderr.strip()[-1000:]}")
            own.sdk.append(numbers(json.loads(done.stdout)))


OWN: dict[str, Callable[[Own, Plan, Path], None]] = {
    "idle": idle,
    "fairness": fairness,
    "stuck": stuck,
    "backlog": backlog,
    "sdk": sdk,
}
