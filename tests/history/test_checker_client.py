"""Histories that know the clients' side only: fewer rules, and none that cries wolf."""

import pytest

from pushlane_history.checker import check
from pushlane_history.event import (
    Allow,
    Credit,
    Drained,
    Event,
    LeaseLost,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Quiesce,
    Start,
    Stored,
    Subscribe,
)
from tests.history.tools import (
    E1,
    E2,
    broken,
    client,
    grant,
    published,
    settle,
    stored,
)

OUT = [*published(1), grant(1, "r1")]
NEXT = grant(1, "r2", E1 + 2, 2)
DUMPED = [stored(), Stored(0, "q.dead")]


def test_voids_are_not_seen() -> None:
    assert not broken(client(OUT, NEXT, settle(10, "r2"), DUMPED))
    assert not broken(client(OUT, grant(1, "r2", E2 + 1, 1)))


def test_an_older_grant_may_arrive_later() -> None:
    report = check(client(published(1), NEXT, grant(1, "r1"), settle(10, "r2"), grant(1, "r1")))
    assert report.ok
    assert report.notes == {"late": 2}
    assert broken(client(published(1), NEXT, grant(1, "r1"), settle(10, "r1"))) == {"stale_settle"}


def test_no_newer_grant_after_a_confirmed_ack() -> None:
    assert broken(client(OUT, settle(10, "r1"), NEXT)) == {"grant_after_ack"}
    assert broken(client(OUT, settle(10, "r1", "reject"), NEXT)) == {"confirmed_settle_lost"}
    asked, answered = settle(10, "r1")
    assert broken(client(OUT, asked, NEXT, answered)) == {"stale_settle"}


def test_a_stale_receipt_is_known_by_a_newer_grant_or_a_lost_lease() -> None:
    assert broken(client(OUT, NEXT, settle(10, "r1", "extend"))) == {"stale_settle"}
    assert broken(client(OUT, LeaseLost(0, "r1"), settle(10, "r1"))) == {"stale_settle"}
    assert not broken(client(OUT, NEXT, settle(10, "r1", "nack", "lease_lost")))


def test_two_grants_do_not_have_one_fence() -> None:
    assert broken(client(OUT, grant(1, "r2"))) == {"fence"}


def test_a_resumed_delivery_need_not_be_marked() -> None:
    assert check(client(OUT, grant(1, "r1"))).notes == {"again": 1}
    assert check(client(OUT, grant(1, "r1", again=True))).notes == {"again": 1}
    assert check(client(OUT, NEXT, grant(1, "r1", again=True))).notes == {"late": 1}


def test_a_start_may_come_too_late() -> None:
    assert not broken(client(published(1), Start(0, "r1")))


def test_after_a_delivery_without_ack_only_late_ones_come() -> None:
    delivered = grant(1, "", 0, ack_none=True)
    assert not broken(client(OUT, delivered, NEXT))
    assert broken(client(OUT, delivered, delivered)) == {"grant_after_ack"}


def test_attempts_have_their_limit() -> None:
    config = QueueSet(0, "q", max_attempts=1)
    assert not broken(client(OUT, grant(1, "r2", E1 + 2, 4)))
    assert broken(client(config, OUT, NEXT)) == {"attempts"}


def test_the_server_takes_a_lower_credit_when_it_comes() -> None:
    two = [*published(1), *published(2), grant(1, "r1", sub="s")]
    sub = Subscribe(0, "s", "S", "q", 2)
    assert not broken(client(sub, two, Credit(0, "s", 1), grant(2, "r2", sub="s")))
    third = [*published(3), grant(3, "r3", sub="s")]
    assert broken(client(sub, two, grant(2, "r2", sub="s"), third)) == {"credit"}
    raised = [Credit(0, "s", 3), grant(2, "r2", sub="s"), *third]
    assert not broken(client(sub, two, raised))


def test_order_is_that_of_producers() -> None:
    one, two = published(1, key="k"), published(2, key="k")
    assert not broken(client(one, two, grant(1, "r1"), grant(2, "r2")))
    assert broken(client(one, two, grant(2, "r2"), grant(1, "r1"))) == {"key_order"}
    # Deliveries that wait for no ack may overtake each other on their way.
    late = [grant(n, "", 0, ack_none=True) for n in (2, 1)]
    assert not broken(client(one, two, late))
    # Both under way at once: who knows.
    overlapping = [one[0], two[0], one[1], two[1]]
    assert not broken(client(overlapping, grant(2, "r2"), grant(1, "r1")))


def test_order_holds_through_retries() -> None:
    both = [*published(1, key="k"), *published(2, key="k"), grant(1, "r1"), grant(2, "r2")]
    again = grant(1, "r3", E1 + 2, 2)
    # The first may have ended or left unseen, but then nobody gets or acks it any more.
    assert not broken(client(both, settle(20, "r2")))
    assert broken(client(both, settle(20, "r2"), again)) == {"key_order"}
    assert broken(client(both, settle(10, "r1"))) == {"key_order"}
    leaving = [*settle(20, "r2"), stored(1), Stored(0, "q.dead")]
    assert not broken(client(both, leaving))
    assert not broken(client(both, settle(10, "r1", "ack", "lease_lost")))


def test_an_ack_in_doubt_lets_the_next_one_of_its_key_pass() -> None:
    one, two = [*published(1, key="k"), grant(1, "r1")], published(2, key="k")
    asked, answered = settle(10, "r1")
    assert not broken(client(one, two, asked, grant(2, "r2"), answered))
    again = grant(1, "r3", E1 + 2, 2)
    assert broken(client(one, two, asked, grant(2, "r2"), again)) == {"key_order"}
    # Granted again before: then the ack was not taken, and the key is not free.
    held = client(one, two, asked, again, grant(2, "r2"), settle(11, "r3"))
    assert broken(held) == {"key_order"}


def test_what_left_for_the_dead_letters_holds_up_nobody() -> None:
    both = [*published(1, key="k"), *published(2, key="k"), grant(1, "r1")]
    left = [*settle(10, "r1", "reject"), grant(2, "r2"), *settle(20, "r2")]
    there = grant(1, "r3", queue="q.dead", id="x1")
    assert not broken(client(both, left, there, settle(30, "r3"), DUMPED))
    redriven = Allow(0, "q.dead", "redriven")
    back = grant(1, "r4", id="m9", fence=E1 + 9)
    assert not broken(client(redriven, both, left, there, back, settle(40, "r4")))


def test_a_predecessors_late_delivery_says_nothing_of_the_order() -> None:
    one, two = published(1, key="k"), published(2, key="k")
    newer = [grant(1, "r1", E2 + 1), grant(2, "r2", E1 + 5), *settle(10, "r1")]
    assert not broken(client(one, two, newer))


# lost


def test_a_message_that_nothing_can_have_ended_is_lost() -> None:
    assert broken(client(OUT, DUMPED)) == {"lost"}
    assert broken(client(published(1), Quiesce(0, ["q", "q.dead"], 9), Drained(5))) == {"lost"}
    assert not broken(client(OUT, settle(10, "r1", "ack", "unknown"), DUMPED))


@pytest.mark.parametrize(
    "excuse",
    [
        Allow(0, "q", "purged"),
        QueueSet(0, "q", overflow="drop_oldest"),
        Subscribe(0, "n", "S", "q", 0, True),
    ],
)
def test_what_may_have_ended_unseen_is_excused(excuse: Event) -> None:
    assert not broken(client(excuse, OUT, DUMPED))


def test_so_is_what_has_a_ttl() -> None:
    assert not broken(client(published(1, expires=True), DUMPED))


def test_dead_letters_must_be_looked_at_before_a_message_is_lost() -> None:
    assert not broken(client(OUT, stored()))
    nowhere = QueueSet(0, "q", dead_letter="")
    assert not broken(client(nowhere, OUT, stored()))
    assert broken(client(nowhere, published(1), stored())) == {"lost"}


@pytest.mark.parametrize(
    "excuse", [Allow(0, "q.dead", "purged"), QueueSet(0, "q.dead", overflow="drop_oldest")]
)
def test_what_may_have_ended_among_the_dead_letters_is_excused(excuse: Event) -> None:
    assert not broken(client(excuse, OUT, DUMPED))


def test_a_dead_letter_shows_itself_in_its_queue() -> None:
    there = Stored(0, "q.dead", ["x1"], ["u1"])
    assert not broken(client(OUT, stored(), there))
    delivered = grant(1, "r2", queue="q.dead", id="x1")
    assert not broken(client(OUT, delivered, settle(10, "r2"), DUMPED))
    # A dead-letter queue has no dead letters of its own.
    asked = published(2, queue="q.dead")
    assert broken(client(OUT, settle(10, "r1"), asked, DUMPED)) == {"lost"}


def test_but_once_and_nowhere_else() -> None:
    twice = Stored(0, "q.dead", ["x1", "x2"], ["u1", "u1"])
    assert broken(client(OUT, stored(), twice)) == {"transfer"}
    elsewhere = Stored(0, "elsewhere", ["x1"], ["u1"])
    assert broken(client(OUT, elsewhere)) == {"phantom"}
    assert not broken(client(Allow(0, "q", "late"), OUT, elsewhere))


def test_redriven_messages_come_back_unseen() -> None:
    redriven = Allow(0, "q.dead", "redriven")
    dead = grant(1, "r2", queue="q.dead", id="x1")
    back = grant(1, "r3", id="m9")
    assert broken(client(OUT, dead, back)) == {"phantom"}
    history = client(redriven, OUT, dead, back, settle(10, "r3"))
    assert not broken([*history, *DUMPED])
    assert not broken([*history, Stored(0, "q.dead", ["x2"], ["u1"])])


def test_a_redriven_message_explains_what_a_refused_publish_does_not() -> None:
    redriven = Allow(0, "q.dead", "redriven")
    history = client(redriven, OUT, grant(1, "r3", id="m9"))
    again = [Publish(0, 2, "q", "u1"), PublishFailed(0, 2, "queue_full")]
    assert not broken([*history, *again])


def test_a_duplicate_may_be_of_a_message_that_was_redriven() -> None:
    redriven = Allow(0, "q.dead", "redriven")
    first = [Publish(0, 1, "q", "u1", dedup="d"), PublishFailed(0, 1, "internal")]
    ended = [grant(1, "r1"), *settle(10, "r1")]
    repeat = [Publish(0, 2, "q", "u1", dedup="d"), Published(0, 2, "m1", True)]
    assert not broken(client(redriven, first, ended, repeat))
