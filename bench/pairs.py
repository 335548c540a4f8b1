"""Is this tree slower than an earlier commit? Pairs of runs, in turns, because machines drift.

    python -m bench.pairs COMMIT                 five pairs, about twenty minutes
    python -m bench.pairs COMMIT --pairs 1       one, to see that it works

The earlier commit is checked out and set up in a folder of its own. Each tree runs its own
benchmarks: time per message in the core, CPU time of the server per message, p99 at a slow pace.
In a pair each tree runs twice, in the order earlier, this, this, earlier: whoever runs first is
slower on some machines, and so neither has the advantage. A ratio above 1 means that this tree is
slower. The median over the pairs is what counts.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.gateway.machine import ROOT
from bench.gateway.result import Result, cpu_per_100k, median

PYTHON = Path(".venv") / "bin" / "python"
RESULT = Path(".venv") / "bench" / "benchmarks.json"
CORE = ("batches of 64", "one by one")
LIMIT = 1.03
"""The bar for CPU time per message."""
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pushlane-pairs-") as folder:
        before = Path(folder) / "before"
        _git("worktree", "add", "--quiet", "--detach", str(before), args.commit)
        try:
            subprocess.run(["make", "--quiet", "setup"], cwd=before, check=True)
            ratios = compare(before, args.pairs)
        finally:
            _git("worktree", "remove", "--force", str(before))
    sys.exit(0 if verdict(ratios) else 1)


def compare(before: Path, pairs: int) -> list[Figures]:
    ratios = []
    for pair in range(pairs):
        first, own, again, last = [
            core(tree) | gateway(tree) for tree in (before, ROOT, ROOT, before)
        ]
        then, now = _mean(first, last), _mean(own, again)
        print(f"pair {pair + 1} of {pairs}")
        for name in now:
            print(f"  {name:32s} {then[name]:8.2f} → {now[name]:8.2f}", flush=True)
        ratios.append({name: now[name] / then[name] for name in now})
    return ratios


def _mean(one: Figures, other: Figures) -> Figures:
    return {name: (one[name] + other[name]) / 2 for name in one}


def core(tree: Path) -> Figures:
    """Microseconds per message."""
    said = _run(tree, "bench.core", "--quick")
    rates = {name: re.search(rf"{name} +([\d,]+)", said) for name in CORE}
    return {
        f"core, {name}: µs": 1e6 / int(found[1].replace(",", ""))
        for name, found in rates.items()
        if found is not None
    }


def gateway(tree: Path) -> Figures:
    _run(tree, "bench.gateway", "--only", "pushlane")
    result = msgspec.json.decode((tree / RESULT).read_bytes(), type=Result)
    own = result.system("pushlane")
    assert own is not None
    assert own.whole
    return {
        "gateway, 1 x 1: server CPU µs": 10 * cpu_per_100k(own.one, "server"),
        "gateway, 4 x 4: server CPU µs": 10 * cpu_per_100k(own.four, "server"),
        "gateway, paced: p99 ms": median(own.paced, "p99_ms"),
    }


def verdict(ratios: list[Figures]) -> bool:
    print(f"\nthis tree ÷ the earlier one, median of {len(ratios)} (lowest to highest)")
    reached = True
    for name in ratios[0]:
        found = sorted(each[name] for each in ratios)
        middle = statistics.median(found)
        is_bar = "CPU" in name or name.startswith("core")
        reached = reached and (not is_bar or middle <= LIMIT)
        word = (
            f"at most {LIMIT}: {'reached' if middle <= LIMIT else 'NOT REACHED'}" if is_bar else ""
        )
        print(f"  {name:32s} {middle:.3f} ({found[0]:.3f} to {found[-1]:.3f})  {word}")
    return reached


def _run(tree: Path, module: str, *args: str) -> str:
    command = [str(tree / PYTHON), "-m", module, *args]
    return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout


def _git(*args: str) -> None:
    subprocess.run(["git", *args], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
