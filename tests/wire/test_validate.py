from __future__ import annotations

import pytest
from msgspec import Raw

from pushlane.wire import frames
from pushlane.wire.errors import BadRequest
from pushlane.wire.frames import Failed, Publish, PublishMessage
from pushlane.wire.limits import DEFAULTS, MAX_INT, Limits
from pushlane.wire.validate import (
    check_credit,
    check_extend,
    check_hello,
    check_nack,
    check_publish,
    check_receipts,
    check_subscribe,
)

BODY = Raw(b"1")
YEAR = 365 * 24 * 3_600_000


def publish(*messages: PublishMessage) -> Publish:
    return Publish(1, "q", list(messages))


def message(**options: object) -> PublishMessage:
    return PublishMessage(BODY, **options)  # type: ignore[arg-type]


def text(size: int) -> Raw:
    return Raw(b'"' + b"x" * (size - 2) + b'"')


PASS: list[dict[str, object]] = [
    {},
    {"key": "k"},
    {"key": "k" * 512},
    {"key": "ü" * 256},
    {"dedup": "d" * 256},
    {"dedup": "ü" * 128, "key": "k"},
    {"priority": 0},
    {"priority": 9},
    {"delay_ms": 0},
    {"delay_ms": YEAR, "priority": 1},
    {"ttl_ms": 1},
    {"ttl_ms": YEAR},
    {"headers": {}},
    {"headers": {"a" * 4096: "b" * 4096}},
    {"headers": {"ü": "b" * 8190}},
    {"seq": 1},
    {"seq": MAX_INT, "key": "k"},
    {"event_at": 0},
    {"event_at": MAX_INT},
]

REFUSE: list[tuple[dict[str, object], str]] = [
    ({"key": ""}, "key has 0 bytes: 1 to 512"),
    ({"key": "k" * 513}, "key has 513 bytes: 1 to 512"),
    ({"key": "ü" * 257}, "key has 514 bytes: 1 to 512"),
    ({"key": "k", "priority": 4}, "key can't be combined with priority or delay_ms"),
    ({"key": "k", "delay_ms": 0}, "key can't be combined with priority or delay_ms"),
    ({"dedup": ""}, "dedup has 0 bytes: 1 to 256"),
    ({"dedup": "d" * 257}, "dedup has 257 bytes: 1 to 256"),
    ({"priority": -1}, "priority is -1: 0 to 9"),
    ({"priority": 10}, "priority is 10: 0 to 9"),
    ({"delay_ms": -1}, "delay_ms is -1: 0 to"),
    ({"delay_ms": YEAR + 1}, f"delay_ms is {YEAR + 1}: 0 to {YEAR}"),
    ({"ttl_ms": -1}, "ttl_ms is -1: 1 to"),
    ({"ttl_ms": 0}, "ttl_ms is 0: 1 to"),
    ({"ttl_ms": YEAR + 1}, f"ttl_ms is {YEAR + 1}: 1 to {YEAR}"),
    ({"headers": {"a" * 4096: "b" * 4097}}, "headers has 8193 bytes: at most 8192"),
    ({"headers": {"ü": "b" * 8191}}, "headers has 8193 bytes"),
    ({"seq": 0}, "seq is 0: 1 to"),
    ({"seq": MAX_INT + 1}, "seq is"),
    ({"event_at": -1}, "event_at is -1"),
    ({"event_at": MAX_INT + 1}, "event_at is"),
]


@pytest.mark.parametrize("options", PASS, ids=lambda options: repr(options)[:40])
def test_options_at_their_limits_pass(options: dict[str, object]) -> None:
    assert check_publish(publish(message(), message(**options))) == []


@pytest.mark.parametrize(("options", "fault"), REFUSE, ids=lambda value: repr(value)[:40])
def test_options_over_their_limits_refuse_the_whole_frame(
    options: dict[str, object], fault: str
) -> None:
    with pytest.raises(BadRequest) as raised:
        check_publish(publish(message(), message(**options)))
    assert raised.value.message.startswith(f"messages[1]: {fault}")


def test_a_seq_needs_a_producer() -> None:
    assert check_publish(publish(message()), has_producer=False) == []
    with pytest.raises(BadRequest, match=r"messages\[0\]: seq needs a producer"):
        check_publish(publish(message(seq=1)), has_producer=False)


@pytest.mark.parametrize("wrong", [PublishMessage(), PublishMessage(BODY, b"")])
def test_exactly_one_of_body_and_data(wrong: PublishMessage) -> None:
    assert check_publish(publish(PublishMessage(data=b""), PublishMessage(Raw(b"null")))) == []
    with pytest.raises(BadRequest, match=r"messages\[1\]: give exactly one of body and data"):
        check_publish(publish(message(), wrong))


def test_the_size_of_a_batch() -> None:
    assert check_publish(publish(*[message()] * 1000)) == []
    for count in (0, 1001):
        with pytest.raises(BadRequest, match=f"messages is {count}: 1 to 1000"):
            check_publish(publish(*[message()] * count))
    with pytest.raises(BadRequest, match="messages is 3: 1 to 2"):
        check_publish(publish(*[message()] * 3), Limits(batch=2))


def test_a_message_that_is_too_large_fails_alone() -> None:
    frame = publish(
        PublishMessage(text(101)),
        PublishMessage(text(100)),
        PublishMessage(data=b"x" * 101),
        PublishMessage(data=b"x" * 100),
    )
    assert check_publish(frame, DEFAULTS, 100) == [
        Failed(0, "too_large", "101 bytes: at most 100"),
        Failed(2, "too_large", "101 bytes: at most 100"),
    ]


def test_no_queue_allows_more_than_the_wire() -> None:
    size = DEFAULTS.message_bytes
    assert check_publish(publish(PublishMessage(text(size)))) == []
    for most in (None, size, 2 * size):
        (failed,) = check_publish(publish(PublishMessage(text(size + 1))), DEFAULTS, most)
        assert failed.message == f"{size + 1} bytes: at most {size}"


def test_a_mistake_in_form_wins_over_a_message_that_is_too_large() -> None:
    with pytest.raises(BadRequest, match=r"messages\[1\]: priority"):
        check_publish(publish(PublishMessage(text(11)), message(priority=11)), DEFAULTS, 10)
    with pytest.raises(BadRequest, match=r"messages\[0\]: priority"):
        check_publish(publish(PublishMessage(text(11), priority=11)), DEFAULTS, 10)


def test_the_depth_of_bodies() -> None:
    assert check_publish(publish(PublishMessage(Raw(b"[" * 500 + b"]" * 500)))) == []
    assert check_publish(publish(PublishMessage(Raw(b"[" + b"[]," * 600 + b"1]")))) == []
    deep = PublishMessage(Raw(b"[" * 501 + b"]" * 501))
    with pytest.raises(BadRequest, match=r"messages\[1\]: body is nested deeper than 500"):
        check_publish(publish(message(), deep))
    assert len(check_publish(publish(deep), DEFAULTS, 1000)) == 1, "too large to be looked at"


def test_names_of_the_server_s_own_producers_are_reserved() -> None:
    assert check_hello(frames.Hello(producer="pushlane")) == {}
    with pytest.raises(BadRequest, match="reserved"):
        check_hello(frames.Hello(producer="pushlane:transfer:q/0"))


def test_hello() -> None:
    assert check_hello(frames.Hello()) == {}
    assert check_hello(frames.Hello(token="t" * 8192)) == {}
    assert check_hello(frames.Hello(resume=frames.Resume("s"))) == {}
    held = {"1": ["p.1", "q.2-3"], "9007199254740991": []}
    assert check_hello(frames.Hello(resume=frames.Resume("s", held))) == {
        1: [("p", 1, 1), ("q", 2, 3)],
        MAX_INT: [],
    }


@pytest.mark.parametrize("token", ["", "t" * 8193, "ü" * 4097])
def test_hello_with_a_bad_token(token: str) -> None:
    with pytest.raises(BadRequest, match=r"^token has "):
        check_hello(frames.Hello(token=token))


@pytest.mark.parametrize("sub", ["", "0", "01", "-1", "x", "1.0", "٣", "9" * 17])
def test_held_receipts_stand_under_a_sub(sub: str) -> None:
    with pytest.raises(BadRequest, match=r"resume\.held has"):
        check_hello(frames.Hello(resume=frames.Resume("s", {sub: ["p.1"]})))


def test_held_receipts_are_bounded() -> None:
    held = {str(sub): ["p.1-10000"] for sub in range(1, 101)}
    assert len(check_hello(frames.Hello(resume=frames.Resume("s", held)))) == 100
    with pytest.raises(BadRequest, match="more than 10000"):
        check_hello(frames.Hello(resume=frames.Resume("s", {"1": ["p.1-10000", "p.1"]})))
    with pytest.raises(BadRequest, match=r"resume\.held is 101: 0 to 100"):
        check_hello(frames.Hello(resume=frames.Resume("s", held | {"101": []})))


@pytest.mark.parametrize("credit", [1, 10_000])
@pytest.mark.parametrize("lease_ms", [None, 1000, 12 * 3_600_000])
def test_subscribe(credit: int, lease_ms: int | None) -> None:
    check_subscribe(frames.Subscribe(1, "q", credit, lease_ms=lease_ms))


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (frames.Subscribe(1, "q", 0), "credit is 0: 1 to 10000"),
        (frames.Subscribe(1, "q", 10_001), "credit is 10001: 1 to 10000"),
        (frames.Subscribe(1, "q", 1, lease_ms=999), "lease_ms is 999: 1000 to 43200000"),
        (frames.Subscribe(1, "q", 1, lease_ms=43_200_001), "lease_ms is 43200001"),
        (frames.Subscribe(1, "q", 1, ack="all"), "ack is 'all': explicit or none"),  # type: ignore[arg-type]
        (frames.Subscribe(1, "q", 1, start="now"), "start is 'now': delivery or explicit"),  # type: ignore[arg-type]
    ],
)
def test_bad_subscribes(frame: frames.Subscribe, fault: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check_subscribe(frame)
    assert raised.value.message.startswith(fault)


def test_without_acks_credit_is_ignored() -> None:
    for credit in (0, MAX_INT):
        check_subscribe(frames.Subscribe(1, "q", credit, ack="none"))


def test_credit() -> None:
    for credit in (0, 10_000):
        check_credit(frames.Credit(1, credit))
    for credit in (-1, 10_001):
        with pytest.raises(BadRequest, match=f"credit is {credit}: 0 to 10000"):
            check_credit(frames.Credit(1, credit))


def test_receipts_come_back_parsed() -> None:
    runs = [("p", 1, 3), ("q", 9, 9)]
    receipts = ["p.1-3", "q.9"]
    assert check_receipts(frames.Start(1, receipts)) == runs
    assert check_receipts(frames.Ack(1, receipts)) == runs
    assert check_nack(frames.Nack(1, receipts)) == runs
    assert check_extend(frames.Extend(1, receipts, 1000)) == runs


@pytest.mark.parametrize("receipts", [[], ["p"], ["p.1-10000", "p.1"]])
def test_bad_receipts_are_refused_everywhere(receipts: list[str]) -> None:
    for frame in (frames.Start(1, receipts), frames.Ack(1, receipts)):
        with pytest.raises(BadRequest):
            check_receipts(frame)
    with pytest.raises(BadRequest):
        check_nack(frames.Nack(1, receipts))
    with pytest.raises(BadRequest):
        check_extend(frames.Extend(1, receipts, 1000))


def test_nack() -> None:
    check_nack(frames.Nack(1, ["p.1"], delay_ms=0, error="e" * 1024))
    check_nack(frames.Nack(1, ["p.1"], delay_ms=YEAR, error=""))
    check_nack(frames.Nack(1, ["p.1"], error="ü" * 512, dead=True))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"delay_ms": -1}, "delay_ms is -1"),
        ({"delay_ms": YEAR + 1}, "delay_ms is"),
        ({"delay_ms": 0, "dead": True}, "delay_ms can't be combined with dead"),
        ({"error": "e" * 1025}, "error has 1025 bytes: 0 to 1024"),
        ({"error": "ü" * 513}, "error has 1026 bytes"),
    ],
)
def test_bad_nacks(options: dict[str, object], fault: str) -> None:
    with pytest.raises(BadRequest) as raised:
        check_nack(frames.Nack(1, ["p.1"], **options))  # type: ignore[arg-type]
    assert raised.value.message.startswith(fault)


@pytest.mark.parametrize("lease_ms", [-1, 0, 999, 43_200_001])
def test_bad_extends(lease_ms: int) -> None:
    with pytest.raises(BadRequest, match=f"lease_ms is {lease_ms}: 1000 to 43200000"):
        check_extend(frames.Extend(1, ["p.1"], lease_ms))


def test_extends_at_their_limits() -> None:
    for lease_ms in (1000, 43_200_000):
        assert check_extend(frames.Extend(1, ["p.1"], lease_ms))
