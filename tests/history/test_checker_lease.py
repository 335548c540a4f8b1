"""Leases: two_leases, stale_settle, fence, attempts, credit, and owners that change."""

from typing import Any

import pytest

from pushlane_history.checker import check
from pushlane_history.event import (
    Allow,
    Crash,
    Credit,
    Detach,
    Ended,
    Kind,
    LeaseLost,
    Leaving,
    Open,
    QueueSet,
    Resume,
    SessionEnd,
    Settle,
    Start,
    Subscribe,
    Unsubscribe,
    Verdict,
    Void,
)
from pushlane_history.leasing import KEPT_LOST
from tests.history.tools import (
    E1,
    E2,
    History,
    broken,
    grant,
    nack,
    published,
    server,
    settle,
    stored,
    void,
)

CRASH: History = [Crash(0, "n1"), Open(0, "n2", 2)]
TAKEOVER = Open(0, "n2", 2)  # while n1 runs on
OUT = [*published(1), grant(1, "r1")]
AT_MOST_ONCE = Subscribe(0, "n", "S", "q", 0, True)


def no_ack(n: int) -> Any:
    return grant(n, "", 0, ack_none=True)


# two_leases


def test_a_receipt_stands_for_one_grant() -> None:
    assert broken(server(OUT, published(2), grant(2, "r1"))) == {"two_leases"}
    assert broken(server(OUT, void(1), grant(1, "r1", E1 + 2, 2))) == {"two_leases"}


def test_a_lost_lease_is_no_void() -> None:
    history = server(OUT, LeaseLost(0, "r1"), grant(1, "r2", E1 + 2, 2))
    assert broken(history) == {"two_leases"}


def test_a_void_of_an_older_grant_is_not_enough() -> None:
    history = server(OUT, void(1), grant(1, "r2", E1 + 2, 2), void(1, E1 + 1, 1))
    assert not broken(history)
    assert broken([*history, grant(1, "r3", E1 + 3, 3)]) == {"two_leases"}


def test_a_new_owner_may_grant_what_its_predecessor_left() -> None:
    report = check(server(OUT, CRASH, grant(1, "r2", E2 + 1), settle(10, "r2"), stored()))
    assert report.ok
    assert report.notes == {"takeover": 1}


def test_an_epoch_that_nobody_opened_excuses_nothing() -> None:
    assert broken(server(OUT, Crash(0, "n1"), grant(1, "r2", E2 + 1))) == {"fence"}
    assert broken(server(published(1), grant(1, "r1", E2 + 1))) == {"fence"}


def test_a_new_owner_may_honour_receipts() -> None:
    report = check(server(OUT, CRASH, settle(10, "r1"), stored()))
    assert report.ok
    assert report.notes == {"honoured": 1}


def test_a_message_may_be_sent_again_under_its_receipt() -> None:
    report = check(server(OUT, grant(1, "r1", again=True), settle(10, "r1")))
    assert report.ok
    assert report.notes == {"again": 1}


@pytest.mark.parametrize("over", [void(1), LeaseLost(0, "r1")])
def test_but_not_under_one_that_is_over(over: Any) -> None:
    assert broken(server(OUT, over, grant(1, "r1", again=True))) == {"two_leases"}


def test_a_delivery_without_ack_needs_a_free_message() -> None:
    assert broken(server(OUT, no_ack(1))) == {"two_leases"}
    assert not broken(server(OUT, void(1), no_ack(1), stored()))
    assert not broken(server(OUT, CRASH, no_ack(1), stored()))


def test_a_delivery_without_ack_is_the_last_one() -> None:
    history = server(AT_MOST_ONCE, published(1), no_ack(1))
    assert not broken([*history, stored()])
    assert broken([*history, no_ack(1)]) == {"grant_after_ack"}
    assert broken([*history, *CRASH, grant(1, "r2", E2 + 1)]) == {"grant_after_ack"}
    assert broken([*history, stored(1)]) == {"confirmed_settle_lost"}


def test_it_is_settled_before_it_leaves() -> None:
    history = server(AT_MOST_ONCE, published(1), Ended(0, "q", "m1", "acked"))
    assert not broken([*history, *CRASH, stored()])
    assert not broken([*history, no_ack(1), stored()])
    assert not broken([*history, Ended(0, "q", "m1", "acked")])
    assert broken([*history, no_ack(1), no_ack(1)]) == {"grant_after_ack"}


# zombies


def test_a_zombies_grants_are_void_and_harmless() -> None:
    history = server(OUT, TAKEOVER, grant(1, "r2", E2 + 1))
    zombie = grant(1, "r3", E1 + 2)
    report = check([*history, zombie, *settle(10, "r2"), stored()])
    assert report.ok
    assert report.notes["zombie"] == 1
    assert check([*history, *settle(10, "r2"), zombie]).ok
    assert broken([*history, zombie, *settle(11, "r3")]) == {"stale_settle"}


def test_a_node_that_crashed_is_no_zombie() -> None:
    history = server(OUT, TAKEOVER, grant(1, "r2", E2 + 1), Crash(0, "n1"))
    assert broken([*history, grant(1, "r3", E1 + 2)]) == {"fence"}
    history += settle(10, "r2")
    assert broken([*history, grant(1, "r3", E1 + 2)]) == {"grant_after_ack"}


def test_a_zombie_may_not_know_how_a_message_ended() -> None:
    purged = [Allow(0, "q", "purged"), Ended(0, "q", "m1", "purged")]
    zombie = grant(1, "r3", E1 + 1)
    assert not broken(server(published(1), TAKEOVER, purged, zombie))
    assert not broken(server(published(1), TAKEOVER, zombie, purged))
    assert not broken(server(published(1), TAKEOVER, zombie, no_ack(1)))
    assert not broken(server(published(1), TAKEOVER, no_ack(1), zombie))
    assert not broken(
        server(published(1, expires=True), TAKEOVER, Leaving(0, "q", "m1", "expired", "d"), zombie)
    )


def test_a_zombie_can_deliver_nothing_that_needs_no_ack() -> None:
    history = server(OUT, TAKEOVER, grant(1, "r2", E2 + 1), settle(10, "r2"))
    assert broken([*history, no_ack(1)]) == {"grant_after_ack"}


# stale_settle, grant_after_ack, confirmed_settle_lost


@pytest.mark.parametrize("kind", ["ack", "nack", "reject", "extend"])
def test_a_settle_is_judged_by_what_was_true_when_it_was_sent(kind: Kind) -> None:
    stale = server(OUT, void(1), grant(1, "r2", E1 + 2, 2))
    assert not broken([*stale, *settle(10, "r1", kind, "lease_lost")])
    assert not broken([*stale, *settle(10, "r1", kind, "duplicate")])
    assert broken([*stale, *settle(10, "r1", kind)]) == {"stale_settle"}
    assert broken(server(OUT, LeaseLost(0, "r1"), settle(10, "r1", kind))) == {"stale_settle"}
    assert broken(server(settle(10, "nobody", kind))) == {"stale_settle"}


@pytest.mark.parametrize(
    ("kind", "caught"), [("ack", 1), ("reject", 1), ("nack", 0), ("extend", 0)]
)
def test_an_answer_may_be_overtaken_by_the_next_grant(kind: Kind, caught: int) -> None:
    asked, answered = settle(10, "r1", kind)
    history = server(OUT, asked, void(1), grant(1, "r2", E1 + 2, 2), answered)
    assert broken(history) == ({"stale_settle"} if caught else set())


def test_an_ack_that_was_taken_leaves_nothing_to_void() -> None:
    asked, answered = settle(10, "r1")
    assert broken(server(OUT, asked, void(1), answered)) == {"stale_settle"}
    assert broken(server(OUT, asked, answered, void(1))) == {"confirmed_settle_lost"}


def test_two_receipts_cannot_both_ack() -> None:
    asked, answered = settle(10, "r1")
    second = [void(1), grant(1, "r2", E1 + 2, 2), *settle(11, "r2")]
    assert broken(server(OUT, asked, second, answered)) == {"stale_settle"}


def test_nobody_settles_anothers_grant() -> None:
    foreign = [Settle(0, 10, "ack", "r1", "T"), Verdict(0, 10, "ok")]
    report = check(server(OUT, foreign))
    assert set(report.broken) == {"stale_settle"}
    assert report.notes == {"foreign_settle": 1}
    refused = [Settle(0, 10, "ack", "r1", "T"), Verdict(0, 10, "lease_lost")]
    assert not broken(server(OUT, refused, settle(11, "r1")))


def test_whoever_has_a_receipt_of_a_dead_owner_may_settle_it() -> None:
    foreign = [Settle(0, 10, "ack", "r1", "T"), Verdict(0, 10, "ok")]
    report = check(server(OUT, CRASH, foreign, stored()))
    assert report.ok
    assert report.notes == {"honoured": 1}
    refused = [Settle(0, 10, "ack", "r1", "T"), Verdict(0, 10, "lease_lost")]
    assert not broken(server(OUT, CRASH, refused, settle(11, "r1"), stored()))


def test_a_start_needs_a_valid_receipt() -> None:
    history = server(published(1), grant(1, "r1", reserved=True))
    assert not broken([*history, Start(0, "r1"), Start(0, "r1"), void(1)])
    assert broken([*history, void(1, attempts=0), Start(0, "r1")]) == {"stale_settle"}


def test_a_lease_may_be_lost_twice() -> None:
    assert not broken(server(OUT, LeaseLost(0, "r1"), LeaseLost(0, "r1"), void(1)))


def test_an_ack_whose_answer_was_lost_may_or_may_not_have_been_taken() -> None:
    history = server(OUT, settle(10, "r1", result="unknown"))
    assert not broken([*history, stored()])
    assert not broken([*history, stored(1)])
    assert not broken([*history, *CRASH, grant(1, "r2", E2 + 1), *settle(11, "r2"), stored()])
    assert broken([*history, *CRASH, grant(1, "r2", E2 + 1), stored()]) == {"lost"}
    assert broken([*history, void(1), stored()]) == {"lost"}


def test_a_refused_ack_took_nothing() -> None:
    assert broken(server(OUT, settle(10, "r1", result="lease_lost"), stored())) == {"lost"}


def test_repeating_an_ack_is_safe() -> None:
    unanswered = [*OUT, *settle(10, "r1", result="unknown")]
    assert not broken(server(unanswered, settle(11, "r1", result="duplicate"), stored()))
    assert not broken(server(unanswered, settle(11, "r1", result="lease_lost"), stored()))
    confirmed = server(unanswered, settle(11, "r1", result="duplicate"))
    assert broken([*confirmed, grant(1, "r2", E1 + 2)]) == {"grant_after_ack"}
    assert not broken(server(OUT, settle(10, "r1"), settle(11, "r1", result="duplicate")))


def test_both_answers_of_a_repeated_ack_may_be_late() -> None:
    asks = [Settle(0, 10, "ack", "r1", "S"), Settle(0, 11, "ack", "r1", "S")]
    answers = [Verdict(0, 11, "duplicate"), Verdict(0, 10, "ok")]
    assert not broken(server(OUT, asks, answers, stored()))
    assert not broken(server(OUT, asks, answers[::-1], stored()))


@pytest.mark.parametrize("kind", ["ack", "nack", "extend"])
def test_a_duplicate_of_nothing_is_a_lie(kind: Kind) -> None:
    assert broken(server(OUT, settle(10, "r1", kind, "duplicate"))) == {"stale_settle"}


def test_a_duplicate_says_nothing_of_which_settle_was_taken() -> None:
    asks = [*settle(10, "r1", "nack", "unknown"), *settle(11, "r1", result="duplicate")]
    assert not broken(server(OUT, asks, void(1), grant(1, "r2", E1 + 2, 2)))


def test_an_extension_after_an_ack_is_a_duplicate() -> None:
    asks = [*settle(10, "r1", result="unknown"), *settle(11, "r1", "extend", "duplicate")]
    assert not broken(server(OUT, asks, stored()))
    assert broken(server(OUT, asks, stored(1))) == {"confirmed_settle_lost"}


@pytest.mark.parametrize("kind", ["nack", "reject"])
def test_what_is_confirmed_is_durable(kind: Kind) -> None:
    assert broken(server(OUT, settle(10, "r1", kind))) == {"confirmed_settle_lost"}


def test_a_confirmed_reject_may_have_ended_already() -> None:
    asked, answered = settle(10, "r1", "reject")
    dead = Ended(0, "q", "m1", "dead", "rejected")
    assert not broken(server(QueueSet(0, "q", dead_letter=""), OUT, asked, dead, answered))


def test_after_a_confirmed_ack_nothing_else_happens() -> None:
    acked = server(Allow(0, "q", "purged"), OUT, settle(10, "r1"))
    assert not broken([*acked, Ended(0, "q", "m1", "acked")])
    for event in (
        Ended(0, "q", "m1", "purged"),
        Leaving(0, "q", "m1", "max_attempts", "q.dead"),
        void(1),
        stored(1),
    ):
        assert broken([*acked, event]) == {"confirmed_settle_lost"}, event


def test_an_ack_of_what_ended_another_way() -> None:
    asked, answered = settle(10, "r1")
    ended = Ended(0, "q", "m1", "expired")
    history = server(published(1, expires=True), grant(1, "r1"), asked, ended, answered)
    assert broken(history) == {"ended_twice"}


def test_an_end_is_not_voided() -> None:
    ended = [void(1), Ended(0, "q", "m1", "expired")]
    history = server(published(1, expires=True), grant(1, "r1"), ended, void(1))
    assert broken(history) == {"ended_twice"}


def test_a_void_of_an_unknown_message_says_nothing() -> None:
    assert not broken(server(void(1)))


# what a new owner knows


def test_a_lease_called_lost_but_not_voided_may_be_good_again_under_a_new_owner() -> None:
    lost = server(OUT, LeaseLost(0, "r1"))
    assert not broken([*lost, *CRASH, *settle(10, "r1"), stored()])
    assert broken([*lost, void(1), *CRASH, *settle(10, "r1")]) == {"stale_settle"}
    assert broken([*lost, *CRASH, LeaseLost(0, "r1"), *settle(10, "r1")]) == {"stale_settle"}


def test_but_not_when_it_was_granted_again() -> None:
    lost = server(OUT, LeaseLost(0, "r1"), CRASH, grant(1, "r2", E2 + 1))
    history = [*lost, LeaseLost(0, "r2"), Crash(0, "n2"), Open(0, "n3", 3)]
    assert broken([*history, *settle(10, "r1")]) == {"stale_settle"}
    assert not broken([*history, *settle(10, "r2")])


def test_lost_leases_are_sorted_out() -> None:
    history = server()
    for n in range(1, KEPT_LOST + 3):
        history += [*published(n), grant(n, f"r{n}"), LeaseLost(0, f"r{n}"), void(n)]
    last = KEPT_LOST + 3
    history += [*published(last), grant(last, "last"), LeaseLost(0, "last"), *CRASH]
    assert not broken([*history, *settle(100_000, "last")])
    assert broken([*history, *settle(100_000, "r1")]) == {"stale_settle"}


def test_a_new_owner_knows_no_permits() -> None:
    history = server(SUB, published(1), published(2), published(3), held(1), CRASH)
    two = [*history, held(2, fence=E2 + 1)]
    assert not broken(two)
    assert broken([*two, held(3, fence=E2 + 1)]) == {"credit"}


# fence


def test_a_void_may_name_a_grant_that_never_left() -> None:
    history = server(published(1), CRASH, void(1, E1 + 1, 0, 0))
    assert broken([*history, grant(1, "r2", E1 + 1)]) == {"fence"}
    assert not broken([*history, grant(1, "r2", E2 + 1)])


# attempts


def test_a_reservation_that_was_given_back_is_no_attempt() -> None:
    history = server(published(1), grant(1, "r1", reserved=True), void(1, attempts=0))
    assert not broken([*history, grant(1, "r2", E1 + 2, 1)])
    assert broken([*history, grant(1, "r2", E1 + 2, 2)]) == {"attempts"}


def test_a_start_is_an_attempt() -> None:
    history = server(published(1), grant(1, "r1", reserved=True), Start(0, "r1"))
    assert not broken([*history, void(1, attempts=1)])
    assert broken([*history, void(1, attempts=0)]) == {"attempts"}
    assert broken([*history, void(1, attempts=2)]) == {"attempts"}


def test_a_delivery_that_nobody_saw_is_no_attempt() -> None:
    history = server(OUT, LeaseLost(0, "r1", unseen=True))
    for attempts in (0, 1):
        assert not broken([*history, void(1, attempts=attempts)])
    assert broken(server(OUT, LeaseLost(0, "r1"), void(1, attempts=0))) == {"attempts"}


def test_counts_that_a_void_does_not_tell_are_counted_here() -> None:
    history = server(OUT, Void(0, "q", "m1", E1 + 1))
    assert not broken([*history, grant(1, "r2", E1 + 2, 2)])
    assert broken([*history, grant(1, "r2", E1 + 2, 1)]) == {"attempts"}


def test_a_crash_may_forget_an_attempt_but_not_invent_one() -> None:
    history = server(OUT, CRASH)
    for attempt in (1, 2):
        assert not broken([*history, grant(1, "r2", E2 + 1, attempt)])
    assert broken([*history, grant(1, "r2", E2 + 1, 3)]) == {"attempts"}
    for attempts in (0, 1):
        assert not broken([*history, void(1, attempts=attempts)])
    assert broken([*history, void(1, attempts=2)]) == {"attempts"}


def test_what_was_durable_survives_a_crash() -> None:
    history = server(OUT, void(1), grant(1, "r2", E1 + 2, 2), CRASH)
    assert broken([*history, grant(1, "r3", E2 + 1, 1)]) == {"attempts"}


def test_attempts_and_deliveries_have_limits() -> None:
    config = QueueSet(0, "q", max_attempts=1, max_deliveries=1)
    assert broken(server(config, OUT, nack(1, 10, "r1"), grant(1, "r2", E1 + 2, 2))) == {"attempts"}
    reserved = [*published(1), grant(1, "r1", reserved=True)]
    history = server(config, reserved, Detach(0, ""), void(1, attempts=0, deliveries=1))
    assert broken([*history, grant(1, "r2", E1 + 2, 1)]) == {"attempts"}
    history = server(config, reserved, void(1, attempts=0, deliveries=0))
    assert not broken([*history, grant(1, "r2", E1 + 2, 1)])


def test_deliveries_are_never_above_the_truth_and_never_forgotten() -> None:
    reserved = [*published(1), grant(1, "r1", reserved=True, sub="s")]
    assert broken(server(reserved, void(1, attempts=0, deliveries=1))) == {"attempts"}
    broke = Detach(0, "s")
    assert not broken(server(reserved, broke, void(1, attempts=0, deliveries=1)))
    assert broken(server(reserved, broke, void(1, attempts=0, deliveries=2))) == {"attempts"}
    assert broken(server(OUT, Detach(0, ""), void(1, deliveries=1))) == {"attempts"}, "started"
    second = [void(1, attempts=0, deliveries=1), grant(1, "r2", E1 + 2, 1)]
    assert broken(server(reserved, broke, second, void(1, E1 + 2, 1, 0))) == {"attempts"}


def test_a_client_comes_back_to_each_shard_by_itself() -> None:
    reserved = [*published(1), grant(1, "a.1", reserved=True, sub="s")]
    broke, counted = Detach(0, "s"), void(1, attempts=0, deliveries=1)
    assert not broken(server(reserved, broke, Resume(0, "s", "b"), counted))
    assert broken(server(reserved, broke, Resume(0, "s", "a"), counted)) == {"attempts"}
    assert broken(server(reserved, broke, Resume(0, "s"), counted)) == {"attempts"}
    assert broken(server(reserved, Resume(0, "s", "b"), counted)) == {"attempts"}, "not away"
    gone_again = [Resume(0, "s", "a"), broke, counted]
    assert not broken(server(reserved, broke, gone_again))


def test_after_two_leases_counts_are_not_held_against_it() -> None:
    assert broken(server(OUT, grant(1, "r2", E1 + 2, 1), void(1, E1 + 2, 1))) == {"two_leases"}


# credit

SUB = Subscribe(0, "s", "S", "q", 1)


def held(n: int, **fields: Any) -> Any:
    return grant(n, f"r{n}", sub="s", **fields)


@pytest.mark.parametrize(
    "back",
    [
        settle(10, "r1", "ack", "unknown"),
        settle(10, "r1", "nack", "unknown"),
        [LeaseLost(0, "r1"), LeaseLost(0, "r1")],
        [void(1)],
        [LeaseLost(0, "r1"), void(1)],
        [LeaseLost(0, "r1"), *settle(10, "r1", "ack", "lease_lost")],
        [SUB],
        [Credit(0, "s", 2)],
        [Unsubscribe(0, "s")],
        [SessionEnd(0, "S")],
    ],
)
def test_what_gives_a_permit_back(back: History) -> None:
    assert not broken(server(SUB, published(1), published(2), held(1), back, held(2)))


@pytest.mark.parametrize(
    "other",
    [
        settle(10, "r1", "extend"),
        [SessionEnd(0, "T")],
        [Unsubscribe(0, "t")],
        [Credit(0, "t", 9)],
        [grant(1, "r1", again=True, sub="s")],
    ],
)
def test_what_does_not(other: History) -> None:
    history = server(SUB, published(1), published(2), held(1), other, held(2))
    assert broken(history) == {"credit"}


def test_lowering_the_credit_takes_nothing_back() -> None:
    two = [Credit(0, "s", 2), *published(1), *published(2), *published(3), held(1), held(2)]
    lowered = server(SUB, two, Credit(0, "s", 0), settle(10, "r1"))
    assert not broken(lowered)
    assert broken([*lowered, held(3)]) == {"credit"}


def test_credit_is_ignored_where_no_ack_is_needed() -> None:
    history = server(AT_MOST_ONCE, published(1), published(2))
    assert not broken([*history, no_ack(1), no_ack(2)])
