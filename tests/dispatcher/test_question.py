"""Questions about a shard, and their answers, are values: they can be packed and sent."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from pushlane_dispatcher.browsing.question import (
    AnyQuestion,
    Cancel,
    DropBuckets,
    Explain,
    Find,
    FlushUsage,
    Found,
    GetStats,
    Kept,
    ListConsumers,
    Look,
    Order,
    Peek,
    Purge,
    Question,
    RedriveSpan,
    SpanRedriven,
    answer_type,
)
from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.browsing.span import Part, Span, Waiting
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Dead, Message

SPAN = Span(2, 4, 1 << 40, (1 << 40) + 7)
MESSAGE = Message(
    b"\x00\xff", 1, True, "key", {"a": "b"}, "dedup", "producer", 7, 8, 9, 10,
    Dead("expired", "q", "id", 3, None, 5),
)  # fmt: skip
REDRIVE = Redrive(max=7, budget_ms=100, to="q", rate=5, dry_run=True, targets=("a", "b*"))
CONSUMER = ConsumerInfo(
    session="s", client="c", shard=2, state="away", credit=7, reserved=1, leased=2, lease_ms=5,
    ack="none",
)  # fmt: skip

NUMBERS: list[Any] = [*range(19)]
OLDLESS: list[Any] = [*NUMBERS[:12], None, *NUMBERS[13:]]
CASES: list[tuple[Question[Any], list[Any]]] = [
    (GetStats(), [Stats(*NUMBERS), Stats(*OLDLESS)]),
    (
        Peek(7, 1 << 62, [SPAN]),
        [Part([], [], []), Part([Waiting(2, 4, 1 << 40, 1, MESSAGE)], [SPAN], [SPAN], 99)],
    ),
    (Peek(0), []),
    (Find(4, 1 << 50), [Found(MESSAGE, 3), Found(Message(b"", 0), 0)]),
    (Explain(4, 1 << 50), [Explanation("ready", "why"), Explanation("dead", "", 1, 2, "s", "c")]),
    (ListConsumers(), [[], [CONSUMER]]),
    (Cancel(4, 1 << 50), [None]),
    (Purge(), [0, 7]),
    (RedriveSpan(REDRIVE, SPAN, 3, 20), [SpanRedriven(3, 1 << 50), SpanRedriven(0, 0, True)]),
    (RedriveSpan(Redrive(max=1, budget_ms=1), SPAN), []),
    (DropBuckets([BucketKey(4, 1, 99)]), [[], [Kept(BucketKey(-1, 2, 3), "it is not drained")]]),
    (FlushUsage(), [None]),
]


@pytest.mark.parametrize("question", [question for question, _ in CASES])
def test_each_question_can_be_sent(question: Question[Any]) -> None:
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=AnyQuestion)
    assert arrived == question
    assert type(arrived) is type(question)


@pytest.mark.parametrize(
    ("question", "answer"), [(question, one) for question, answers in CASES for one in answers]
)
def test_each_answer_can_be_sent(question: Question[Any], answer: object) -> None:
    packed = msgspec.msgpack.encode(answer)
    arrived = msgspec.msgpack.decode(packed, type=answer_type(type(question)))
    assert arrived == answer
    assert type(arrived) is type(answer)


def test_all_of_them_are_tried() -> None:
    every = set(get_args(AnyQuestion))
    assert {type(question) for question, _ in CASES} == every
    assert {type(question) for question, answers in CASES if answers} == every
    assert every == {*Look.__subclasses__(), *Order.__subclasses__()}


def test_what_is_no_question() -> None:
    for packed in (["Unheard"], ["Find", "x", 1], 7):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=AnyQuestion)
