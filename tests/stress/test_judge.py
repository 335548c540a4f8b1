"""The judge finds what it is there for, and nothing else."""

from __future__ import annotations

import pytest

from tests.stress.judge import MAX_ATTEMPTS, MAX_DELIVERIES, Grant, Judge, Message


def rules(judge: Judge) -> list[str]:
    return [text.partition(":")[0] for text in judge.violations]


def published(judge: Judge, uid: str = "a", queue: str = "work", **more: object) -> Message:
    message = Message(uid, queue, **more)  # type: ignore[arg-type]
    judge.asked(message)
    judge.confirmed(message, f"id-{uid}", False)
    return message


def delivered(
    judge: Judge, uid: str = "a", n: int = 1, queue: str = "work", **more: object
) -> Grant:
    frame = {"id": f"id-{uid}", "receipt": f"P.{n}", "fence": n, **more}
    grant = judge.delivered(queue, frame, uid)
    assert grant is not None
    return grant


def ack(judge: Judge, grant: Grant) -> None:
    judge.acked(grant, judge.acking(grant))


def test_a_message_that_is_delivered_and_acked_is_fine() -> None:
    judge = Judge()
    published(judge)
    assert [message.uid for message in judge.unfinished()] == ["a"]
    ack(judge, delivered(judge))
    assert not judge.unfinished()
    judge.retire()
    assert not judge.violations


def test_a_redelivery_before_the_ack_is_fine_and_one_after_it_is_not() -> None:
    judge = Judge()
    published(judge)
    delivered(judge)
    ack(judge, delivered(judge, n=2))
    delivered(judge, n=1)  # an old frame, read late
    assert not judge.violations
    delivered(judge, n=3)
    assert rules(judge) == ["after_ack"]


def test_what_was_acked_never_comes_again_in_later_rounds() -> None:
    judge = Judge()
    published(judge)
    ack(judge, delivered(judge))
    judge.retire()
    assert judge.delivered("work", {"id": "id-a", "receipt": "P.9", "fence": 9}, "a") is None
    assert rules(judge) == ["after_ack"]


def test_an_ack_of_an_older_grant_may_not_count() -> None:
    judge = Judge()
    published(judge)
    old = delivered(judge)
    delivered(judge, n=2)
    ack(judge, old)
    assert rules(judge) == ["stale_ack"]


def test_an_ack_that_was_refused_changes_nothing() -> None:
    judge = Judge()
    message = published(judge)
    grant = delivered(judge)
    judge.acking(grant)
    assert message.settled
    judge.not_acked(grant)
    assert judge.unfinished() == [message]


def test_two_receipts_with_one_fence() -> None:
    judge = Judge()
    published(judge)
    delivered(judge)
    delivered(judge)
    assert not judge.violations
    delivered(judge, receipt="P.7")
    assert rules(judge) == ["two_leases"]


def test_a_repeat_with_another_id() -> None:
    judge = Judge()
    message = published(judge)
    judge.confirmed(message, "id-a", True)
    assert not judge.violations
    judge.confirmed(message, "id-b", False)
    assert rules(judge) == ["stored_twice"]


def test_two_copies_that_are_acked() -> None:
    judge = Judge()
    published(judge)
    ack(judge, delivered(judge))
    ack(judge, delivered(judge, id="id-b"))
    assert rules(judge) == ["stored_twice"]


def test_a_refused_message_may_not_come_unless_a_try_was_unknown() -> None:
    judge = Judge()
    for uid in "ab":
        judge.asked(Message(uid, "work"))
    judge.unanswered(judge._messages["a"])
    for uid in "ab":
        judge.refused(judge._messages[uid], "queue_full")
    delivered(judge, "a")
    assert not judge.violations
    delivered(judge, "b")
    assert rules(judge) == ["refused_delivered"]


def test_keys_come_in_order_one_at_a_time() -> None:
    judge = Judge()
    for n in (1, 2, 3):
        published(judge, f"m{n}", "keys", key="k", n=n)
    first = delivered(judge, "m1", queue="keys")
    ack(judge, first)
    judge.acking(delivered(judge, "m2", queue="keys"))  # nobody knows: it may have been acked
    delivered(judge, "m3", queue="keys")
    assert not judge.violations


def test_a_key_out_of_order() -> None:
    judge = Judge()
    for n in (1, 2):
        published(judge, f"m{n}", "keys", key="k", n=n)
    delivered(judge, "m2", queue="keys")
    assert rules(judge) == ["key_order"]


CAUSES = ["rejected", "expired", "max_attempts", "max_deliveries", "damaged", "overflow"]


@pytest.mark.parametrize("attempts", [1, MAX_ATTEMPTS])
@pytest.mark.parametrize("cause", CAUSES)
def test_a_death_needs_a_reason(cause: str, attempts: int) -> None:
    """What the server says of attempts is not enough: nobody saw them."""
    judge = Judge()
    judge.breaks = 100  # before it was published
    published(judge)
    delivered(judge, queue="work.dead", dead={"cause": cause, "attempts": attempts})
    assert rules(judge) == ["dead_without_reason"]


def test_a_death_of_connections_that_were_lost() -> None:
    judge = Judge()
    published(judge)
    judge.breaks += MAX_DELIVERIES
    delivered(judge, queue="work.dead", dead={"cause": "max_deliveries", "attempts": 0})
    assert not judge.violations


def test_deaths_with_a_reason() -> None:
    judge = Judge()
    published(judge, "a").rejected = True
    published(judge, "b", ttl=True)
    published(judge, "c")
    for n in range(MAX_ATTEMPTS):
        delivered(judge, "c", n + 2)
    for uid, cause in (("a", "rejected"), ("b", "expired"), ("c", "max_attempts")):
        dead = {"cause": cause, "attempts": MAX_ATTEMPTS}
        delivered(judge, uid, queue="work.dead", dead=dead)
    assert not judge.violations


def test_nobody_published_it() -> None:
    judge = Judge()
    assert judge.delivered("work", {"id": "x", "receipt": "P.1", "fence": 1}, "ghost") is None
    assert rules(judge) == ["stored_twice"]
