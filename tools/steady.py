"""Run pytest; a few tests that failed get another chance, alone.

    python -m tools.steady [--times N] ARGUMENTS OF PYTEST

Tests with real servers, browsers and clocks fail now and then when the machine stands still at the
wrong moment. What fails because it is wrong fails again: so each test that failed must pass N times
(3) in a row with nothing beside it, or the run has failed. Those that do are named as unsteady, for
somebody to fix. With more than a few failures there is no second chance.
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--times", type=int, default=3)
    found, rest = parser.parse_known_args(arguments)
    return run(rest, found.times)


def run(arguments: list[str], times: int) -> int:
    with tempfile.TemporaryDirectory(prefix="pushlane-steady-") as folder:
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
    print(f"\n== unsteady: {', '.join(failed)}", flush=True)
    return 0


def run_pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failures(cache: Path) -> list[str]:
    """The tests that failed in the run that had this cache."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(msgspec.json.decode(kept.read_bytes(), type=dict[str, bool]))


if __name__ == "__main__":
    sys.exit(main())
