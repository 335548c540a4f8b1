"""Failed logins: counted, logged at a bounded rate, without what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from pushlane.wire.errors import BadRequest, Unauthorized
from pushlane_gateway.auth.origin import OriginPolicy
from pushlane_gateway.auth.refused import MINUTE_S, SHOWN, FailedLogins, NoToken, RefusedOrigins
from pushlane_gateway.metrics import Metrics
from tests.gateway.auth.tools import make_authenticator, make_token


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "login" in one.getMessage()]


async def test_so_many_a_minute(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    failed = FailedLogins(metrics, most=2)
    for _ in range(5):
        failed.note("10.0.0.1:5", Unauthorized("no such key"))
    assert lines(caplog) == ["login of 10.0.0.1:5 failed: no such key"] * 2
    assert (metrics.failed_logins, metrics.limits.counts["failed_logins"]) == (5, 3)
    await trio.sleep(60)
    failed.note("10.0.0.1:6", Unauthorized("no such key"))
    assert lines(caplog)[2:] == ["login of 10.0.0.1:6 failed: no such key (3 more were not logged)"]


async def test_what_is_no_login(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    failed = FailedLogins(metrics)
    failed.note("10.0.0.1:5", NoToken("send one"))
    failed.note("10.0.0.1:5", BadRequest("nonsense"))
    assert (lines(caplog), metrics.failed_logins) == ([], 0)


def test_who_sends_none_has_no_token(tmp_path: Path) -> None:
    make_token(tmp_path / "keys", "admin:*")
    with pytest.raises(NoToken):
        make_authenticator(tmp_path / "keys").authenticate(None)


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
