from typing import Any

import msgspec
import pytest

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import Limits
from pushlane_dispatcher.queues.config import check_config, own_dead_letter
from pushlane_storage.queue import QueueConfig


def test_the_defaults_are_good() -> None:
    assert check_config("q", QueueConfig()) == QueueConfig()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_ms", 999),
        ("lease_ms", 12 * 60 * 60 * 1000 + 1),
        ("max_attempts", 0),
        ("max_attempts", 1_001),
        ("max_deliveries", 0),
        ("max_deliveries", 10_001),
        ("reserve_ms", 999),
        ("reserve_ms", 86_400_001),
        ("backoff_base_ms", -1),
        ("backoff_base_ms", 86_400_001),
        ("backoff_max_ms", 30 * 86_400_000 + 1),
        ("consumer_backoff_base_ms", -1),
        ("consumer_backoff_max_ms", 3_600_001),
        ("dedup_window_ms", -1),
        ("dedup_window_ms", 7 * 86_400_000 + 1),
        ("max_message_bytes", 0),
        ("max_message_bytes", 1024 * 1024 + 1),
        ("max_messages", 0),
        ("max_messages", 1_000_000_001),
        ("max_bytes", 0),
        ("max_bytes", (1 << 50) + 1),
        ("retention_ms", 59_999),
        ("shards", 0),
        ("shards", 257),
        ("archive", "s3://somewhere"),
        ("ordering", "sequence"),
        ("ordering", "timestamp"),
        ("reorder_window_ms", 100),
        ("late_queue", "late"),
        ("late_to_head", True),
        ("encrypted", True),
        ("durability", "one"),
        ("dead_letter", ".hidden"),
        ("dead_letter", "q"),
        ("overflow", "explode"),
        ("lease_ms", "soon"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(field: str, value: Any) -> None:
    config = QueueConfig(**{field: value})
    with pytest.raises(BadRequest) as refused:
        check_config("q", config)
    assert field.replace("dead_letter", "") in refused.value.message
    assert refused.value.message.isprintable()


def test_a_base_above_its_maximum_is_refused() -> None:
    with pytest.raises(BadRequest, match="backoff_base_ms is greater than backoff_max_ms"):
        check_config("q", QueueConfig(backoff_base_ms=2, backoff_max_ms=1))
    with pytest.raises(BadRequest, match="consumer_backoff_base_ms is greater"):
        check_config("q", QueueConfig(consumer_backoff_base_ms=2, consumer_backoff_max_ms=1))


def test_the_servers_limits_bound_what_a_queue_may_set() -> None:
    limits = Limits(message_bytes=2048, lease_ms_min=10)
    config = QueueConfig(lease_ms=10, max_message_bytes=2048)
    assert check_config("q", config, limits) == config
    with pytest.raises(BadRequest, match="max_message_bytes is 262144: 1 to 2048"):
        check_config("q", QueueConfig(), limits)


def test_a_name_must_leave_room_for_its_dead_letters() -> None:
    name = "q" * 116
    with pytest.raises(BadRequest, match=r"too long for \.dead"):
        check_config(name, QueueConfig())
    check_config(name, QueueConfig(dead_letter=""))
    check_config("q" * 115 + ".dead", QueueConfig())


@pytest.mark.parametrize(("name", "target"), [("q", ""), ("q.dead", None)])
def test_overflow_to_dead_letters_needs_a_queue_for_them(name: str, target: str | None) -> None:
    for config in (QueueConfig(overflow="dead_letter"), QueueConfig(retention_end="dead_letter")):
        check_config("q", config)
        config = msgspec.structs.replace(config, dead_letter=target)
        with pytest.raises(BadRequest, match=r"is 'dead_letter', .* no dead-letter queue"):
            check_config(name, config)


@pytest.mark.parametrize(
    ("name", "setting", "target"),
    [
        ("q", None, "q.dead"),
        ("q", "", None),
        ("q", "grave", "grave"),
        ("q.dead", None, None),
        ("q.dead", "grave", None),
    ],
)
def test_where_dead_letters_go(name: str, setting: str | None, target: str | None) -> None:
    assert own_dead_letter(name, QueueConfig(dead_letter=setting)) == target


def test_a_queue_for_dead_letters_names_no_other() -> None:
    check_config("q.dead", QueueConfig(dead_letter=""))
    with pytest.raises(BadRequest, match=r"ends in \.dead has none"):
        check_config("q.dead", QueueConfig(dead_letter="grave"))
