from __future__ import annotations

import msgspec
import pytest

from pushlane.wire.limits import DEFAULT_LANE, DEFAULTS, LIMITS, Limits, limits_from_wire

# Section 10 of the design, and the limits that were chosen since.
EXPECTED = {
    "frame_bytes": 4 * 1024**2,
    "message_bytes": 1024**2,
    "batch": 1000,
    "credit": 10_000,
    "subs": 100,
    "unanswered": 1024,
    "inflight_bytes": 16 * 1024**2,
    "header_bytes": 8192,
    "lease_ms_min": 1000,
    "lease_ms_max": 12 * 3_600_000,
    "wait_ms": 60_000,
    "error_bytes": 1024,
    "run": 10_000,
    "settle": 10_000,
    "held": 2_000,
    "name": 120,
    "id": 128,
    "body_depth": 500,
    "delay_ms_max": 365 * 24 * 3_600_000,
    "ttl_ms_max": 365 * 24 * 3_600_000,
    "key_bytes": 512,
    "dedup_bytes": 256,
    "token_bytes": 8192,
    "hello_ms": 5000,
    "heartbeat_ms": 25_000,
    "resume_ms": 30_000,
    "priority_max": 9,
    "priority_default": 4,
}

# Where a limit at the end of its own range needs another one to make room.
ROOM = {
    "frame_bytes": {"message_bytes": 1024},
    "message_bytes": {"frame_bytes": 64 * 1024**2},
}


def limits_with(name: str, value: int) -> Limits:
    return Limits(**{**ROOM.get(name, {}), name: value})


def test_defaults_are_those_of_the_design() -> None:
    assert msgspec.to_builtins(DEFAULTS) == EXPECTED
    assert DEFAULT_LANE == 4


def test_every_limit_stands_in_the_table_in_the_same_order() -> None:
    assert list(LIMITS) == list(Limits.__struct_fields__)
    for info in LIMITS.values():
        assert info.minimum <= info.default <= info.maximum
        assert info.unit
        assert info.reason.endswith(".")


@pytest.mark.parametrize("name", LIMITS)
def test_limits_can_be_set_within_their_range_only(name: str) -> None:
    info = LIMITS[name]
    for value in (info.minimum, info.maximum):
        assert getattr(limits_with(name, value), name) == value
    for value in (info.minimum - 1, info.maximum + 1):
        with pytest.raises(ValueError, match=f"{name} is {value}: "):
            limits_with(name, value)


def test_limits_must_fit_each_other() -> None:
    with pytest.raises(ValueError, match="half of frame_bytes"):
        Limits(frame_bytes=1024**2, message_bytes=512 * 1024 + 1)
    Limits(frame_bytes=1024**2, message_bytes=512 * 1024)
    with pytest.raises(ValueError, match="greater than lease_ms_max"):
        Limits(lease_ms_min=3000, lease_ms_max=2000)


def test_a_configuration_file_is_checked_too() -> None:
    assert msgspec.convert({"batch": 10}, Limits).batch == 10
    with pytest.raises(msgspec.ValidationError, match="batch is 0: 1 to 10000"):
        msgspec.convert({"batch": 0}, Limits)


def test_welcome_shows_all_but_three() -> None:
    shown = Limits(batch=17).wire()
    assert set(EXPECTED) - set(shown) == {"hello_ms", "heartbeat_ms", "resume_ms"}
    assert shown["batch"] == 17


def test_clients_take_defaults_for_what_they_are_not_told() -> None:
    known = limits_from_wire({"batch": 17, "from_the_future": 1})
    assert (known.batch, known.credit) == (17, 10_000)
    assert limits_from_wire({"batch": 0}) == DEFAULTS
