"""Logs: one line an event on stderr, as text or JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from pushlane_gateway.logs import configure_logs

log = logging.getLogger("pushlane_gateway.test")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def test_json_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    log.warning("%s fell over", "it")
    try:
        raise ValueError("a fault")
    except ValueError:
        log.exception("failed")
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = map(json.loads, captured.err.splitlines())
    assert (first["event"], first["level"]) == ("it fell over", "warning")
    assert first["logger"] == "pushlane_gateway.test"
    assert first["timestamp"].endswith("Z")
    assert "ValueError: a fault" in second["exception"]


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "text")
    log.info("hello")
    (line,) = capsys.readouterr().err.splitlines()
    assert "hello" in line
    assert "\x1b" not in line
    assert not line.startswith("{")


def test_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("error", "json")
    log.warning("unheard")
    log.error("heard")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    configure_logs()
    log.warning("once")
    assert len(capsys.readouterr().err.splitlines()) == 1
