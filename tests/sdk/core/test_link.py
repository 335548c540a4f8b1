"""What the end of a connection means."""

from __future__ import annotations

import pytest

from pushlane.core.link import ABNORMAL, NORMAL, parting
from pushlane.wire.errors import BadRequest, ConnectionLost, Unauthorized, Unavailable


@pytest.mark.parametrize("code", [ABNORMAL, NORMAL, 1001, 1011, 1013, 4002, 4999])
def test_come_back(code: int) -> None:
    error, is_final = parting(code, "", None, is_leaving=False)
    assert isinstance(error, ConnectionLost)
    assert not is_final


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [(1002, "", "bad_request"), (1008, "", "unauthorized"), (4001, "taken_over", "taken_over")],
)
def test_give_up(code: int, reason: str, expected: str) -> None:
    error, is_final = parting(code, reason, None, is_leaving=False)
    assert error.code == expected
    assert is_final


def test_a_reason_may_say_that_it_passes() -> None:
    assert not parting(1008, "unavailable", None, is_leaving=False).is_final


def test_the_error_that_came_before_counts() -> None:
    assert parting(ABNORMAL, "", BadRequest("no"), is_leaving=False).is_final
    assert not parting(ABNORMAL, "", Unavailable("later", 7), is_leaving=False).is_final
    assert parting(1008, "", Unauthorized("who?"), is_leaving=False).error.message == "who?"


def test_after_goaway_we_always_come_back() -> None:
    assert not parting(1008, "unauthorized", None, is_leaving=True).is_final
    assert not parting(ABNORMAL, "", BadRequest("no"), is_leaving=True).is_final
