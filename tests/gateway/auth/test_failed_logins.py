"""Failed logins: counted, logged at a bounded rate, without what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pushlane.wire.errors import BadRequest, Unauthorized
from pushlane_gateway.auth.failed_logins import FailedLogins, NoToken
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
