from __future__ import annotations

import pickle
import re

import pytest

from pushlane.wire import errors
from pushlane.wire.errors import CLOSES, CODES, PushlaneError, error_for

# Section 10 of the design: the codes, and the HTTP status of each.
STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "too_large": 413,
    "throttled": 429,
    "queue_full": 507,
    "lease_lost": 409,
    "conflict": 409,
    "unavailable": 503,
    "internal": 500,
}

MADE = [
    PushlaneError("made_up", "what", 5),
    PushlaneError(code="made_up", message="what"),
    *[error_for(code, "why", 7) for code in CODES],
    errors.BadFrame("id: wrong", id=3, op="ack", sub=4),
    errors.NotAFrame("not UTF-8", 1007),
    errors.ConnectionLost("gone"),
]


def subclasses(cls: type[PushlaneError]) -> set[type[PushlaneError]]:
    return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))


def test_the_table_has_every_code_of_the_design() -> None:
    assert {code: info.http_status for code, info in CODES.items()} == STATUS


@pytest.mark.parametrize("code", CODES)
def test_every_code_says_what_to_do(code: str) -> None:
    info = CODES[code]
    assert info.code == code
    assert info.advice.endswith(".")
    assert info.fault in ("caller", "server", "nobody")
    assert info.close_code is None or info.close_code in CLOSES
    # What may have happened must be repeated; what is the caller's fault stays wrong.
    assert info.retry or not info.outcome_unknown
    assert not (info.retry and info.fault == "caller")


def test_the_outcome_is_unknown_for_two_codes_only() -> None:
    unknown = {code for code, info in CODES.items() if info.outcome_unknown}
    assert unknown == {"unavailable", "internal"}


def test_only_bad_credentials_always_close() -> None:
    assert {code for code, info in CODES.items() if info.close_code} == {"unauthorized"}


@pytest.mark.parametrize("code", CODES)
def test_error_for_makes_the_class_of_the_code(code: str) -> None:
    error = error_for(code, "why", 9)
    assert type(error).__name__.lower() == code.replace("_", "")
    assert (error.code, error.message, error.retry_ms) == (code, "why", 9)
    assert error.info is CODES[code]
    assert error_for(code, "why").retry_ms is None


def test_a_code_from_the_future_is_an_error_too() -> None:
    error = error_for("made_up", "what", 5)
    assert type(error) is PushlaneError
    assert (error.code, error.message, error.retry_ms) == ("made_up", "what", 5)
    assert error.info is CODES["internal"]


@pytest.mark.parametrize("error", MADE, ids=repr)
def test_errors_survive_pickling(error: PushlaneError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert (copy.code, str(copy), repr(copy)) == (error.code, str(error), repr(error))


def test_errors_read_well() -> None:
    error = errors.Throttled("too fast", 20)
    assert str(error) == "too fast"
    assert repr(error) == "Throttled('throttled', 'too fast', retry_ms=20)"


def test_what_is_no_frame_is_not_taken_for_a_bad_request() -> None:
    error = errors.NotAFrame("not JSON")
    assert not isinstance(error, errors.BadRequest)
    assert (error.code, error.close_code) == ("bad_request", 1002)
    assert isinstance(errors.BadFrame("x"), errors.BadRequest)


def test_a_lost_connection_leaves_the_outcome_unknown() -> None:
    error = errors.ConnectionLost("gone")
    assert error.code not in CODES
    assert error.info.outcome_unknown
    assert error.info.retry


def test_the_close_codes_are_those_of_the_design() -> None:
    assert list(CLOSES) == [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 1013, 4001, 4002]
    for code, info in CLOSES.items():
        assert info.code == code
        assert len(info.reason.encode()) <= 123, "all that a close frame can hold"


def test_the_tree_in_the_docstring_is_whole() -> None:
    assert errors.__doc__ is not None
    shown = set(re.findall(r"^    [│├└─ ]*(\w+)", errors.__doc__, re.MULTILINE))
    public = {
        cls.__name__ for cls in subclasses(PushlaneError) if cls.__module__ == errors.__name__
    }
    assert shown == {name for name in public if not name.startswith("_")}
