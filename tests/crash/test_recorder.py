"""Histories of several processes, and what is made of them."""

from __future__ import annotations

import time
from pathlib import Path

from pushlane_history.event import (
    AnyEvent,
    Begin,
    Bound,
    Crash,
    Drained,
    Grant,
    Publish,
    Published,
    PublishFailed,
    Quiesce,
    Settle,
    Verdict,
)
from tests.crash.campaign import READY_MS
from tests.crash.judge import judge
from tests.crash.load import QUEUES, WORK
from tests.crash.recorder import Recorder, merged, repeats_told


def test_parts_are_merged_by_time(tmp_path: Path) -> None:
    one, two = Recorder(1), Recorder(2)
    events = [Quiesce(0, [], n) for n in range(6)]
    for number, event in enumerate(events):
        (one if number % 3 else two).add(event)
    paths = [tmp_path / "one", tmp_path / "two"]
    for recorder, path in zip((one, two), paths, strict=True):
        recorder.write(path)
    assert list(merged(paths)) == [Begin(0, "client"), *events]


def test_requests_of_two_processes_have_different_numbers() -> None:
    one, two = Recorder(1), Recorder(2)
    assert len({one.op(), one.op(), two.op(), two.op()}) == 4


def test_time_is_the_machines() -> None:
    assert abs(Recorder(1).at - time.monotonic() * 1000) < 1000


def test_order_is_disclaimed_for_what_is_under_way(tmp_path: Path) -> None:
    recorder = Recorder(1)
    asked = [Publish(0, n, WORK, f"u{n}", "k", producer="p", order=n) for n in (1, 2, 3)]
    other = Publish(0, 4, WORK, "u4", "k", producer="other", order=4)
    answers: list[AnyEvent] = [Published(0, 1, "m1"), PublishFailed(0, 2, "unavailable")]
    for event in (*asked, other, *answers):
        recorder.add(event)
    recorder.disclaim_order("p")
    recorder.write(tmp_path / "part")
    orders = {e.op: e.order for e in merged([tmp_path / "part"]) if isinstance(e, Publish)}
    assert orders == {1: 1, 2: 2, 3: 0, 4: 4}


def test_an_sdk_need_not_know_that_its_repeat_was_a_duplicate() -> None:
    asked: list[AnyEvent] = [Publish(0, n, WORK, "u", dedup="d") for n in (1, 2, 3)]
    answered: list[AnyEvent] = [Published(0, n, "m") for n in (1, 2)]
    other = Published(0, 3, "another")
    told = list(repeats_told([*asked, *answered, other]))
    assert told[3:] == [Published(0, 1, "m"), Published(0, 2, "m", True), other]


# The judge


def judged(tmp_path: Path, *events: AnyEvent) -> tuple[set[str], str]:
    recorder = Recorder(1)
    for event in events:
        recorder.add(event)
    recorder.write(tmp_path / "part")
    verdict = judge([tmp_path / "part"])
    return set(verdict.report.broken), str(verdict.seen)


STORED = (Publish(0, 1, WORK, "u1"), Published(0, 1, "m1"))
GRANTED = Grant(0, WORK, "m1", "u1", receipt="r.1", fence=1 << 20 | 1)
ACKED = (Settle(0, 2, "ack", "r.1"), Verdict(0, 2, "ok"))
DRAINED = (Quiesce(0, QUEUES, 9), Drained(5))


def test_a_good_history(tmp_path: Path) -> None:
    broken, seen = judged(tmp_path, *STORED, GRANTED, *ACKED, *DRAINED)
    assert not broken
    assert "messages=1, confirmed=1, unknown=0" in seen
    assert "deliveries=1, again=0, acked=1" in seen


def test_an_acknowledged_message_is_lost(tmp_path: Path) -> None:
    assert judged(tmp_path, *STORED, *DRAINED)[0] == {"lost"}
    assert judged(tmp_path, *STORED, GRANTED, *DRAINED)[0] == {"lost"}


def test_a_message_is_delivered_after_its_ack(tmp_path: Path) -> None:
    again = Grant(0, WORK, "m1", "u1", receipt="r.2", fence=2 << 20 | 1, attempt=2)
    broken, seen = judged(tmp_path, *STORED, GRANTED, *ACKED, again, *DRAINED)
    assert broken == {"grant_after_ack"}
    assert "deliveries=2, again=1" in seen


def test_not_everything_drains(tmp_path: Path) -> None:
    assert judged(tmp_path, *STORED, DRAINED[0], Drained(5, 1))[0] == {"drain"}


def test_an_outage_lasts_until_a_producer_is_answered(tmp_path: Path) -> None:
    late = Publish(90, 2, WORK, "u2"), Published(90, 2, "m2")
    last = Publish(340, 3, WORK, "u3"), Published(350, 3, "m3"), Published(380, 1, "m1")
    down = Crash(50, "server"), *late, Bound(300, "ready_ms", 250, READY_MS)
    _, seen = judged(tmp_path, STORED[0], *down, *last)
    assert "outages_ms=[300]" in seen


def test_a_server_that_is_not_ready_in_time(tmp_path: Path) -> None:
    assert not judged(tmp_path, Bound(0, "ready_ms", 2_999, READY_MS), *DRAINED)[0]
    assert judged(tmp_path, Bound(0, "ready_ms", 3_001, READY_MS), *DRAINED)[0] == {"bounds"}
