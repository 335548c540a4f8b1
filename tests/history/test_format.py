"""The format: lines of JSON that come back as they were."""

import io
from typing import get_args

import msgspec
import pytest

from pushlane_history.checker import Checker, check
from pushlane_history.event import (
    AnyEvent,
    Begin,
    DamagedHistory,
    Event,
    Grant,
    LeaseLost,
    Publish,
    QueueSet,
    decode,
    read,
    write,
)
from pushlane_storage.queue import QueueConfig
from tests.history.model import Model


def encoded(events: list[Event]) -> io.BytesIO:
    file = io.BytesIO()
    write(file, events)
    file.seek(0)
    return file


@pytest.mark.parametrize("seed", range(20))
def test_a_history_comes_back_as_it_was(seed: int) -> None:
    history = Model(seed).run(150)
    assert list(read(encoded(history))) == history


def test_the_model_writes_every_kind_of_event() -> None:
    seen = {type(event) for seed in range(40) for event in Model(seed, gaps=True).run(150)}
    assert seen == set(get_args(AnyEvent))


def test_more_events_than_a_chunk_are_all_written() -> None:
    history: list[Event] = [LeaseLost(at, "r") for at in range(2_500)]
    assert list(read(encoded(history))) == history


def test_a_line_names_its_event_and_leaves_out_defaults() -> None:
    line = encoded([LeaseLost(5, "r1"), Publish(6, 1, "q", "u1")]).getvalue()
    assert line == (
        b'{"event":"lease_lost","at":5,"receipt":"r1"}\n'
        b'{"event":"publish","at":6,"op":1,"queue":"q","uid":"u1"}\n'
    )


def test_what_a_line_leaves_out_is_what_a_queue_has() -> None:
    queue = QueueConfig()
    for field in ("max_attempts", "max_deliveries", "dedup_window_ms", "overflow", "dead_letter"):
        assert getattr(QueueSet(0, "q"), field) == getattr(queue, field)


def test_a_line_cut_off_by_a_crash_is_left_out() -> None:
    file = encoded([LeaseLost(1, "r1"), LeaseLost(2, "r2")])
    cut = io.BytesIO(file.getvalue()[:-5])
    assert list(read(cut)) == [LeaseLost(1, "r1")]


@pytest.mark.parametrize("line", [b"{\n", b'{"event":"nonsense","at":1}\n', b'{"event":"start"}\n'])
def test_a_damaged_line_is_named(line: bytes) -> None:
    file = io.BytesIO(encoded([Begin(0)]).getvalue() + line)
    with pytest.raises(DamagedHistory, match="line 2"):
        list(read(file))


def test_fields_of_a_later_version_are_ignored() -> None:
    line = b'{"event":"lease_lost","at":5,"receipt":"r1","mood":"sad"}\n'
    assert list(read(io.BytesIO(line))) == [LeaseLost(5, "r1")]


def test_a_later_format_is_refused() -> None:
    with pytest.raises(DamagedHistory, match="format 2"):
        Checker().feed(Begin(0, format=2))


def test_events_are_small() -> None:
    line = msgspec.json.encode(Grant(1, "q", "m1", "u1", "s", "S", "r", 1 << 20, 1, True))
    assert len(line) < 160


def test_an_empty_history_has_nothing_to_blame() -> None:
    report = check([])
    assert report.ok
    assert str(report) == "0 events: no violation"


def test_one_line() -> None:
    assert decode('{"event":"lease_lost","at":1,"receipt":"r"}') == LeaseLost(1, "r")
    with pytest.raises(DamagedHistory, match="nope"):
        decode(b'{"event":"nope","at":1}')
