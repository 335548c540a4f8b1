"""Run pytest; a few tests that failed get another chance, alone.

    python -m tools.retrying [--times N] ARGUMENTS OF PYTEST

Tests with real servers, browsers and clocks fail now and then when the machine stands still at the
wrong moment. What fails because it is wrong fails again: so each test that failed must pass N times
(3) in a row with nothing beside it, or the run has failed. With more than a few failures there is
no second chance.

Every test gets the chance, not only those that are known for it: on a busy machine any test with a
real clock can fail once, and a run that is red for that teaches people to start it again without
looking. But nobody gets used to it: tests/unsteady.txt names the known ones, may only become
shorter, and a test that passed at its second chance and is not on it is reported as new. The answer
to that is to fix the test.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

MOST = 3
"""Failures that may be bad luck."""
KNOWN = Path(__file__).parents[1] / "tests" / "unsteady.txt"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--times", type=int, default=3)
    found, rest = parser.parse_known_args(arguments)
    return run(rest, found.times)


def run(arguments: list[str], times: int) -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-retrying-") as folder:
        cache = Path(folder)
        code = run_pytest([*arguments, "-o", f"cache_dir={cache}"])
        if code != pytest.ExitCode.TESTS_FAILED:
            return code
        failed = failures(cache)
    if not 1 <= len(failed) <= MOST:
        return code
    print(f"\n== {len(failed)} failed: again, alone, {times} times", flush=True)
    for _ in range(times):
        code = run_pytest(["-p", "no:cacheprovider", *failed])
        if code:
            return code
    report(failed)
    return 0


def report(failed: list[str]) -> None:
    print(f"\n== unsteady: {', '.join(failed)}", flush=True)
    known = known_tests()
    new = [test for test in failed if without_parameters(test) not in known]
    if new:
        print("== NEW, not in tests/unsteady.txt, to be fixed:", *new, sep="\n   ", flush=True)


def run_pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failures(cache: Path) -> list[str]:
    """The tests that failed in the run that had this cache."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(msgspec.json.decode(kept.read_bytes(), type=dict[str, bool]))


def known_tests() -> list[str]:
    """What the list names: `tests/FILE.py::TEST`, without parameters."""
    lines = KNOWN.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def without_parameters(test: str) -> str:
    return test.partition("[")[0]


if __name__ == "__main__":
    sys.exit(main())
