"""Tests interrupt what they start, also when they were started with interrupts ignored."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.repo import ROOT

INTERRUPTING = """
import signal, subprocess
import tests.conftest

child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
child.send_signal(signal.SIGINT)
child.stdin.close()  # who ignores it ends now, with 0
print(child.wait())
"""


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_what_tests_start_can_be_interrupted_where_interrupts_were_ignored() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING],
        cwd=ROOT,
        preexec_fn=ignore_interrupts,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{-signal.SIGINT}\n", "")
