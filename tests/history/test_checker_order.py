"""key_order: by seq, where the history tells it, and as producers know the order."""

from typing import Any

from pushlane_history.event import (
    Allow,
    Crash,
    Ended,
    Leaving,
    Open,
    Publish,
    Published,
    PublishFailed,
    Settle,
)
from tests.history.tools import (
    E1,
    E2,
    History,
    broken,
    flat,
    grant,
    nack,
    published,
    server,
    settle,
    stored,
)

CRASH: History = [Crash(0, "n1"), Open(0, "n2", 2)]
TAKEOVER = Open(0, "n2", 2)  # while n1 runs on


def no_ack(n: int) -> Any:
    return grant(n, "", 0, ack_none=True)


K1, K2 = published(1, key="k"), published(2, key="k")


def test_a_key_waits_for_its_message_to_end_or_leave() -> None:
    history = server(K1, K2, grant(1, "r1"), nack(1, 10, "r1"))
    assert broken([*history, grant(2, "r2")]) == {"key_order"}
    rejected = [Settle(0, 10, "reject", "r1"), Leaving(0, "q", "m1", "rejected", "q.dead")]
    assert not broken(server(K1, K2, grant(1, "r1"), rejected, grant(2, "r2")))
    purged = [Allow(0, "q", "purged"), Ended(0, "q", "m1", "purged")]
    assert not broken(server(K1, K2, purged, grant(2, "r2")))


def test_an_ack_under_way_may_have_ended_it() -> None:
    asked, answered = settle(10, "r1")
    history = server(K1, K2, grant(1, "r1"), asked, grant(2, "r2"))
    assert not broken([*history, answered, stored(2)])
    # Once the next one was granted, it must have been taken.
    assert broken([*history, stored(1, 2)]) == {"key_order"}
    assert broken([*history, *CRASH, grant(1, "r3", E2 + 1)]) == {"key_order"}


def test_messages_of_other_keys_and_without_do_not_wait() -> None:
    history = server(K1, published(2, key="l"), published(3), grant(1, "r1"))
    assert not broken([*history, grant(2, "r2"), grant(3, "r3")])


def test_answers_may_come_in_any_order_but_seq_counts() -> None:
    asks = [Publish(0, 1, "q", "u1", "k"), Publish(0, 2, "q", "u2", "k")]
    answers = [Published(0, 2, "m2", seq=2), Published(0, 1, "m1", seq=1)]
    assert not broken(server(asks, answers, grant(1, "r1")))
    assert broken(server(asks, answers, grant(2, "r2"))) == {"key_order"}


def test_one_with_an_unknown_outcome_has_its_place_too() -> None:
    lost = [Publish(0, 1, "q", "u1", "k"), PublishFailed(0, 1, "internal")]
    first, second = grant(1, "r1", seq=1), grant(2, "r2", seq=2)
    assert not broken(server(lost, K2, first, settle(10, "r1"), second))
    assert not broken(server(lost, K2, grant(2, "r2"), settle(10, "r2")))
    assert broken(server(lost, K2, second, settle(10, "r2"), first)) == {"key_order"}


def test_the_seq_may_come_with_the_answer_after_the_grant() -> None:
    asked, answered = K1
    history = server(asked, grant(1, "r1"), answered, K2)
    assert broken([*history, grant(2, "r2")]) == {"key_order"}


def test_order_is_judged_without_seq_by_what_was_answered_first() -> None:
    unseen = [
        Publish(0, 1, "q", "u1", "k"),
        Published(0, 1, "m1"),
        Publish(0, 2, "q", "u2", "k"),
        Published(0, 2, "m2"),
    ]
    assert not broken(server(unseen, grant(1, "r1"), settle(10, "r1"), grant(2, "r2")))
    assert broken(server(unseen, grant(2, "r2"), settle(10, "r2"), grant(1, "r1"))) == {"key_order"}


def ordered(n: int, **fields: Any) -> Publish:
    return Publish(0, n, "q", f"u{n}", "k", producer="p", order=n, **fields)


def test_and_by_the_order_in_which_one_producer_sent_them() -> None:
    answers = [Published(0, 1, "m1"), Published(0, 2, "m2")]
    sent = [ordered(1), ordered(2)]
    first, second = [grant(1, "r1"), *settle(10, "r1")], [grant(2, "r2"), *settle(11, "r2")]
    assert not broken(server(sent, answers, first, second))
    assert broken(server(sent, answers, second, first)) == {"key_order"}
    # Without an answer it may have been held up, with a repetition it is another's turn.
    assert not broken(server(sent, second, first))
    again = Publish(0, 3, "q", "u1", "k")
    assert not broken(server(sent, again, answers, second, first))


def test_a_takeover_does_not_change_the_order() -> None:
    history = server(K1, K2, grant(1, "r1"), CRASH)
    assert broken([*history, grant(2, "r2", E2 + 1)]) == {"key_order"}
    assert not broken([*history, grant(1, "r2", E2 + 1), *settle(10, "r2"), grant(2, "r3", E2 + 1)])


def test_a_key_whose_messages_have_no_place() -> None:
    unplaced = [Publish(0, 1, "q", "u1", "k"), Published(0, 1, "m1"), Allow(0, "q", "purged")]
    assert not broken(server(unplaced, Ended(0, "q", "m1", "purged")))


def test_a_zombies_late_first_grant_says_nothing_of_the_order() -> None:
    unseen = flat(*([Publish(0, n, "q", f"u{n}", "k"), Published(0, n, f"m{n}")] for n in (1, 2)))
    history = server(unseen, TAKEOVER, grant(2, "r2", E2 + 1), grant(1, "r1", E1 + 1))
    assert not broken(history)


def test_a_delivery_without_ack_keeps_the_order() -> None:
    assert broken(server(K1, K2, no_ack(2))) == {"key_order"}
    assert not broken(server(K1, K2, no_ack(1), no_ack(2)))
