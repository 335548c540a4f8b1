"""The Spark jobs on millions of messages, and the audit of a million events.

    python -m bench.spark                     everything: about 15 minutes, 6 GB of disk
    python -m bench.spark --quick             a hundredth, to see that everything works
    python -m bench.spark --only read audit   read, audit, cassandra, retention, metrics
    python -m bench.spark --json FILE         the figures as well

Each figure is of a process of its own, with Spark on two cores. Memory is that of the process and
all that it started, Java and Python. Spark's start is no part of the seconds. Growth is the time
for a message at the full size over that at a tenth of it: at most 1 when time grows linearly, and
less because of what every job costs once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.gateway.machine import Load, Shape, commit, load, shape, shares
from bench.spark.filling import fill_now
from bench.spark.memory import Peak
from bench.spark.phases import Phase, run_phase
from tests.spark.auditing.busy_server import broken_history, busy_history, write_files
from tools.services.cassandra import running_cassandra
from tools.services.cassandra_files import Options

MESSAGES = 5_000_000
CASSANDRA = 200_000
EVENTS = 1_000_000
FILE_EVENTS = 100_000
SECONDS = 300.0
MIB = 4096.0
GROWTH = 1.1
"""Linear, and a tenth for the noise of a machine."""
QUICK = 100


class Check(msgspec.Struct, frozen=True):
    name: str
    value: str
    target: str
    reached: bool


class Result(msgspec.Struct):
    commit: str
    date: str
    quick: bool
    shape: Shape
    busy: float = 0.0
    steal: float = 0.0
    phases: list[Phase] = []
    checks: list[Check] = []


class Bench:
    """One run: where its stores are, how large they are, what was found."""

    def __init__(self, folder: Path, part: int) -> None:
        self.folder = folder
        self.part = part
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        self.result = Result(commit(), today, part > 1, shape())

    def check(self, name: str, value: str, target: str, reached: bool) -> None:
        self.result.checks.append(Check(name, value, target, reached))
        word = "reached" if reached else "NOT REACHED"
        print(f"  {name:52s} {value:>12s}   {target}: {word}", flush=True)

    def measure(self, name: str, place: str, count: int) -> Phase:
        found = _in_process(name, place, count)
        self.result.phases.append(found)
        print(
            f"  {name:16s} {count:>10,}   {found.seconds:7.1f} s (and {found.session_s:.1f} s to"
            f" start), {found.cpu_s:.0f} s of CPU, {found.peak_mib:,.0f} MiB; {found.note}",
            flush=True,
        )
        return found

    def grown(self, *names: str) -> None:
        """Measure these at a tenth and in full, each on a store of its own that was just made."""
        counts = MESSAGES // self.part // 10, MESSAGES // self.part
        for name in names:
            small, large = (self._on_store(name, count) for count in counts)
            self._judge(name, large)
            growth = (large.seconds / large.count) / (small.seconds / small.count)
            label = f"{name}: time for a message, {small.count:,} → {large.count:,}"
            self.check(label, f"{growth:.2f}", f"≤ {GROWTH}", growth <= GROWTH)

    def _on_store(self, name: str, count: int) -> Phase:
        place = self.folder / f"{name}-{count}" / "store"
        place.parent.mkdir()
        url = f"sqlite:{place}"
        return self.measure(name, url, fill_now(url, count))

    def _judge(self, name: str, found: Phase) -> None:
        seconds, label = found.seconds, f"{name}: {found.count:,}"
        self.check(f"{label}, s", f"{seconds:.1f}", f"< {SECONDS:.0f}", seconds < SECONDS)
        mib = found.peak_mib
        self.check(f"{label}, MiB", f"{mib:,.0f}", f"< {MIB:,.0f}", mib < MIB)

    # The parts

    def read(self) -> None:
        self.grown("read", "read_few")

    def retention(self) -> None:
        self.grown("retention")

    def metrics(self) -> None:
        self.grown("metrics")

    def audit(self) -> None:
        events = EVENTS // self.part
        for name, make in (("audit_clean", busy_history), ("audit_broken", broken_history)):
            folder = self.folder / name
            count = write_files(folder, make(events, 1), file_events=FILE_EVENTS)
            self._judge(name, self.measure(name, str(folder), count))

    def cassandra(self) -> None:
        with running_cassandra(1, Options(quick=False, heap_mb=1_024), on_disk=True) as ring:
            url = ring.url("bench")
            self.measure("read_cassandra", url, fill_now(url, CASSANDRA // min(self.part, 2)))
        self.check("Cassandra is asked for partitions by their keys", "yes", "in the plan", True)


def _in_process(name: str, place: str, count: int) -> Phase:
    command = [sys.executable, "-m", "bench.spark", "--phase", name, place, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, Peak(process.pid) as peak:
        assert process.stdout is not None
        said = process.stdout.read()
        code = process.wait()
    if code:
        raise SystemExit(f"{name} failed: see above")
    found = msgspec.json.decode(said.splitlines()[-1], type=Phase)
    return msgspec.structs.replace(found, peak_mib=peak.mib, cpu_s=peak.cpu_s)


PARTS: dict[str, Callable[[Bench], None]] = {
    "read": Bench.read,
    "audit": Bench.audit,
    "cassandra": Bench.cassandra,
    "retention": Bench.retention,
    "metrics": Bench.metrics,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", default=list(PARTS))
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--data", type=Path, help="a folder on the disk to use")
    parser.add_argument("--phase", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    if args.phase:
        name, place, count = args.phase
        print(msgspec.json.encode(run_phase(name, place, int(count))).decode())
        return 0
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-", dir=args.data or ".") as place:
        bench = Bench(Path(place).resolve(), QUICK if args.quick else 1)
        print("Spark on two cores; messages of 200 bytes, stored by whole buckets")
        before = load()
        for name in args.only:
            PARTS[name](bench)
        _finish(bench.result, before, args.json)
    return 0 if all(check.reached for check in bench.result.checks) else 1


def _finish(result: Result, before: Load, path: Path | None) -> None:
    result.busy, result.steal = shares(before, load())
    print(f"  {result.busy:.0%} of all CPU time was used while this ran")
    if path is not None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))


if __name__ == "__main__":
    sys.exit(main())
