"""The wire vectors are what they should be, and the core does what they say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushlane.core.link import backoff_ms
from pushlane.core.settle import expand
from pushlane.wire import JSON, BadRequest, error_for
from pushlane.wire.receipts import compress, parse
from tests.vectors.__main__ import FOLDER, render
from tests.vectors.scenarios import Player


def read(name: str) -> Any:
    return msgspec.json.decode((FOLDER / name).read_bytes())


@pytest.mark.parametrize("name", sorted(render()))
def test_no_file_has_drifted(name: str) -> None:
    assert (FOLDER / name).read_text() == render()[name], "run python -m tests.vectors"


def test_there_are_no_other_files() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.json")) == sorted(render())


@pytest.mark.parametrize("vector", read("frames.json")["frames"], ids=lambda v: v["text"][:40])
def test_frames(vector: dict[str, str]) -> None:
    decode = JSON.decode_client if vector["from"] == "client" else JSON.decode_server
    frame = decode(vector["text"].encode())
    assert JSON.encode(frame).decode() == vector["encoded"]
    assert decode(vector["encoded"].encode()) == frame


def test_frames_of_every_kind_are_there() -> None:
    ops = {msgspec.json.decode(v["text"])["op"] for v in read("frames.json")["frames"]}
    assert ops == {
        "ack", "beat", "credit", "deliver", "done", "ended", "error", "extend", "goaway", "hello",
        "lease_lost", "nack", "publish", "published", "start", "subscribe", "subscribed",
        "unsubscribe", "welcome",
    }  # fmt: skip


def test_errors() -> None:
    for row in read("errors.json")["errors"]:
        error = error_for(row["code"], "m", 5)
        assert type(error).__name__ == row["class"]
        assert error.info.http_status == row["http_status"]
        assert error.info.retry == row["retry"]
        assert not row["repeated_by_client"] or row["retry"]


@pytest.mark.parametrize("row", read("backoff.json")["backoff"])
def test_backoff(row: dict[str, Any]) -> None:
    delay = backoff_ms(row["base_ms"], row["max_ms"], row["attempt"], row["draw"])
    assert delay == row["delay_ms"]
    assert delay <= row["max_ms"]


@pytest.mark.parametrize("row", read("receipts.json")["runs"], ids=lambda row: row["name"])
def test_runs(row: dict[str, Any]) -> None:
    numbers = row.get("numbers") or list(range(row["first"], row["last"] + 1))
    assert compress(row["prefix"], numbers) == row["runs"]
    assert list(expand(row["runs"])) == [f"{row['prefix']}.{n}" for n in numbers]


@pytest.mark.parametrize("text", read("receipts.json")["not_receipts"])
def test_not_receipts(text: str) -> None:
    with pytest.raises(BadRequest):
        parse(text)


SCENARIOS = read("scenarios.json")["scenarios"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_scenarios(scenario: dict[str, Any]) -> None:
    player = Player()
    for number, step in enumerate(scenario["steps"]):
        step = dict(step)
        at, event = step.pop("at"), step.pop("event")
        expected = [step.pop(name) for name in ("effects", "state", "wake_at")]
        effects = player.play(at, event, step)
        assert [effects, player.core.state, player.core.wake_at()] == expected, f"step {number}"
