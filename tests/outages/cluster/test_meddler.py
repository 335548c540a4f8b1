"""What the meddler makes of answers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pushlane_history import event as history
from tests.crash.recorder import merged
from tests.outages.cluster.meddler import Meddler, _result


@pytest.mark.parametrize(
    ("status", "told", "result"),
    [
        (200, {}, "ok"),
        (200, {"lease_lost": ["r"]}, "lease_lost"),
        (200, {"duplicate": ["r"]}, "duplicate"),
        (503, "unavailable", "unknown"),
        (0, "no answer", "unknown"),
    ],
)
def test_answers_to_an_ack(status: int, told: Any, result: str) -> None:
    assert _result(status, told) == result


def test_a_queue_that_is_gone_must_not_take_messages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    meddler = Meddler(90, Random(1), ["http://nowhere"])
    for status in (404, 503, 200):
        monkeypatch.setattr(meddler, "_ask", lambda *_, status=status: (status, None))
        meddler._must_be_gone("http://nowhere")
    path = tmp_path / "meddler.jsonl"
    meddler.recorder.write(path)
    bounds = [event for event in merged([path]) if isinstance(event, history.Bound)]
    assert [(bound.name, bound.value, bound.limit) for bound in bounds] == [
        ("published to a deleted queue", 1, 0)
    ]


def test_its_own_fault_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    meddler = Meddler(90, Random(1), ["http://nowhere"])
    monkeypatch.setattr(meddler, "_ask", lambda *_: (400, "bad_request"))
    meddler.start()
    with pytest.raises(AssertionError, match="400 bad_request"):
        meddler.finish()
