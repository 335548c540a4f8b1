"""A page that may not connect shows in the log, but can't fill it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pushlane_gateway.auth.origin import OriginPolicy
from pushlane_gateway.auth.rationed import MINUTE_S
from pushlane_gateway.auth.refused_origins import SHOWN, RefusedOrigins
from pushlane_gateway.metrics import Metrics

EVIL = "https://evil.example"


async def test_it_is_logged_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    policy = OriginPolicy(lambda: False, refused=RefusedOrigins(metrics).note)
    assert policy.allows(None, "localhost")
    assert not policy.allows(EVIL, "localhost")
    assert not policy.allows(None, "evil.example")
    first, second = caplog.messages
    assert f"Origin '{EVIL}' (Host 'localhost')" in first
    assert "auth.allowed_origins" in first
    assert "Host 'evil.example' is not a name of this machine" in second
    assert metrics.refused_origins == 2


async def test_a_strangers_text_is_cut_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    RefusedOrigins().note("x\n\x1b[31m" + "y" * 1_000, None)
    (line,) = caplog.messages
    assert "x\\n\\x1b[31m" in line
    assert len(line) < 2 * SHOWN


async def test_the_lines_of_a_minute_are_bounded(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    metrics = Metrics()
    refused = RefusedOrigins(metrics, most=2)
    for _ in range(5):
        refused.note(EVIL, None)
    assert len(caplog.messages) == 2
    assert (metrics.refused_origins, metrics.limits.counts["refused_origins"]) == (5, 3)
    await trio.sleep(MINUTE_S)
    refused.note(EVIL, None)
    assert caplog.messages[-1].endswith("(3 more were not logged)")


async def test_no_lines_at_all(caplog: pytest.LogCaptureFixture) -> None:
    RefusedOrigins(most=0).note(EVIL, None)
    assert caplog.messages == []
