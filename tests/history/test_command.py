"""The judge of histories from other languages."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from pushlane_history.event import (
    Begin,
    Drained,
    Event,
    Grant,
    Publish,
    Published,
    Quiesce,
    Settle,
    Stored,
    Verdict,
)

STORED: list[Event] = [
    Begin(0, "client"),
    Publish(1, 1, "q", "u-1"),
    Published(2, 1, "m-1"),
]
ACKED: list[Event] = [
    Grant(3, "q", "m-1", "u-1", receipt="r-1", fence=1),
    Settle(4, 2, "ack", "r-1"),
    Verdict(5, 2, "ok"),
]
END: list[Event] = [Quiesce(6, ["q"], 60_000), Drained(7), Stored(8, "q.dead")]


def judge(events: list[Event]) -> tuple[int, dict[str, int]]:
    text = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    run = subprocess.run(
        [sys.executable, "-m", "tests.history"], input=text, capture_output=True, check=False
    )
    return run.returncode, msgspec.json.decode(run.stdout)["broken"]


def test_a_history_without_a_fault() -> None:
    assert judge([*STORED, *ACKED, *END]) == (0, {})


def test_a_lost_message_is_told() -> None:
    assert judge([*STORED, *END]) == (1, {"lost": 1})


def test_a_grant_after_its_ack_is_told() -> None:
    again = Grant(6, "q", "m-1", "u-1", receipt="r-2", fence=2, attempt=2)
    code, broken = judge([*STORED, *ACKED, again, *END])
    assert code == 1
    assert "grant_after_ack" in broken
