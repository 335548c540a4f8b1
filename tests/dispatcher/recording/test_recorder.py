"""The recorder: its files, its bounds, and that it never stands in anybody's way."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pushlane_dispatcher.recording import recorder as module
from pushlane_dispatcher.recording.recorder import HEAD, HistorySettings, Recorder
from pushlane_history.event import AnyEvent, Begin, Bound, Crash, Event, Gap, read
from tests.storage.sqlite.tools import modes


def make(folder: Path, **settings: Any) -> Recorder:
    chosen = {"queues": ("orders", "acme/*"), "folder": str(folder), **settings}
    return Recorder(HistorySettings(**chosen), "node-1", lambda: 7)


def recorded(folder: Path) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found += read(file)
    return found


def events(count: int) -> list[Event]:
    return [Bound(0, "x", number, count) for number in range(count)]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    recorder = make(tmp_path / "new" / "folder")
    wanted = events(2_500)
    for event in wanted:
        recorder.record(event)
    recorder.close()
    begin, gap, *found, end = recorded(tmp_path / "new" / "folder")
    assert (begin, gap, end) == (Begin(7, note="node-1"), Gap(7), Crash(7, "node-1", clean=True))
    assert found == wanted
    assert recorder.numbers() == {
        "events": 2_502, "lost": 0, "gaps": 0, "waiting": 0, "failures": 0
    }  # fmt: skip


def test_which_queues_it_follows(tmp_path: Path) -> None:
    recorder = make(tmp_path)
    followed = [("t", "orders"), ("t", "orders.dead"), ("acme", "mail"), ("acme", "mail.dead")]
    assert all(recorder.follows(*queue) for queue in followed)
    assert not any(recorder.follows("t", name) for name in ("mail", "orders2", "dead", "Orders"))
    recorder.close()


def test_numbers_of_requests_are_never_those_of_another_run(tmp_path: Path) -> None:
    one = make(tmp_path / "a")
    two = Recorder(HistorySettings(queues=("*",), folder=str(tmp_path / "b")), "n", lambda: 8)
    assert {one.op() for _ in range(1_000)}.isdisjoint({two.op() for _ in range(1_000)})
    assert two.op() < 1 << 63
    one.close()
    two.close()


def test_files_are_rotated_and_the_oldest_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "CHUNK", 20)
    recorder = make(tmp_path, file_bytes=2_000, files=3)
    for event in events(1_000):
        recorder.record(event)
    recorder.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == HEAD
    assert len(names) == 4
    history = recorded(tmp_path)
    assert history[:2] == [Begin(0, note="older files are gone"), Gap(0)]
    values = [event.value for event in history if isinstance(event, Bound)]
    assert values == list(range(1_000 - len(values), 1_000))
    assert 40 <= len(values) < 200


def test_its_owner_alone_may_read_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "CHUNK", 20)
    folder = tmp_path / "above" / "history"
    before = os.umask(0)
    try:
        recorder = make(folder, file_bytes=2_000, files=3)
        for event in events(1_000):
            recorder.record(event)
        recorder.close()
    finally:
        os.umask(before)
    seen = modes(folder)
    assert HEAD in seen
    assert seen.pop("history") == 0o700
    assert set(seen.values()) == {0o600}
    assert modes(folder.parent)["above"] == 0o777


def test_what_does_not_fit_is_a_gap(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    going = threading.Event()
    write = Recorder._write

    def slow(self: Recorder, chunk: list[Event]) -> None:
        assert going.wait(30)
        write(self, chunk)

    monkeypatch.setattr(Recorder, "_write", slow)
    recorder = make(tmp_path, events=10)
    with caplog.at_level(logging.WARNING):
        for event in events(1_000):  # nobody waits for the disk
            recorder.record(event)
    assert recorder.lost >= 900
    assert caplog.text.count("the history has a gap") == 1
    going.set()
    recorder.close()
    history = recorded(tmp_path)
    [start, gap] = [event for event in history if isinstance(event, Gap)]
    assert (start.lost, gap.lost) == (0, recorder.lost)
    assert sum(isinstance(event, Bound) for event in history) == 1_000 - recorder.lost
    assert recorder.numbers()["gaps"] == 1


def test_a_disk_that_fails_costs_the_history_only(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write, failed = Recorder._write, threading.Event()

    def failing(self: Recorder, chunk: list[Event]) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError(28, "No space left on device")
        write(self, chunk)

    monkeypatch.setattr(Recorder, "_write", failing)
    recorder = make(tmp_path)
    assert failed.wait(30)
    recorder.record(Bound(0, "x", 1, 1))
    recorder.close()
    assert "can't be written" in caplog.text
    assert recorder.failures == 1
    assert recorded(tmp_path)[1] == Gap(7, lost=recorder.lost)
    assert recorder.lost >= 1


def test_whoever_did_not_end_in_good_order_has_crashed(tmp_path: Path) -> None:
    make(tmp_path).close()
    assert sum(isinstance(event, Crash) for event in recorded(tmp_path)) == 1
    file = tmp_path / "00000001.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]) + lines[-1][:10])  # killed while it wrote
    make(tmp_path).close()
    crashes = [event for event in recorded(tmp_path) if isinstance(event, Crash)]
    assert [(crash.node, crash.clean) for crash in crashes] == [("node-1", False), ("node-1", True)]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make(tmp_path / "file")
