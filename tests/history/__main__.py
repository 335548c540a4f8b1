"""Judges a history that comes in on stdin, a JSON object a line: `python -m tests.history < FILE`.

For tests in other languages. The report goes to stdout as JSON; the exit code says whether all is
well.
"""

from __future__ import annotations

import sys

import msgspec

from pushlane_history import event as history
from pushlane_history.checker import Checker


def main() -> int:
    checker = Checker()
    for event in history.read(sys.stdin.buffer):
        checker.feed(event)
    report = checker.finish()
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
