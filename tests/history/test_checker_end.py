"""Ends: lost, ended_twice, dead_cause, transfer, in_flight, drain."""

import pytest

from pushlane_history.checker import Checker, check
from pushlane_history.ending import CLOCKS_MS, TRANSFER_WINDOW_MS
from pushlane_history.event import (
    Allow,
    Crash,
    Deleted,
    Detach,
    Drained,
    Ended,
    Event,
    Fault,
    How,
    LeaseLost,
    Leaving,
    Moved,
    Open,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Quiesce,
    Resume,
    Settle,
    Start,
    Stored,
    Subscribe,
)
from tests.history.tools import (
    E1,
    E2,
    History,
    broken,
    grant,
    published,
    server,
    settle,
    stored,
    void,
)

CRASH: History = [Crash(0, "n1"), Open(0, "n2", 2)]
OUT = [*published(1), grant(1, "r1")]
REJECTED = [*OUT, Settle(0, 10, "reject", "r1"), Leaving(0, "q", "m1", "rejected", "q.dead")]
MOVED = Moved(0, "q", "m1", "q.dead", "x1", "u1", 1)
DEAD = Ended(0, "q", "m1", "dead")
NOWHERE = QueueSet(0, "q", dead_letter="")
UNKNOWN = [Publish(0, 1, "q", "u1", expires=True), PublishFailed(0, 1, "internal")]


def ended(how: How, cause: str = "") -> Ended:
    return Ended(0, "q", "m1", how, cause)


# lost


def test_without_a_dump_what_has_not_ended_may_be_stored() -> None:
    assert not broken(server(published(1)))
    assert not broken(server(published(1), Stored(0, "other")))


def test_a_dump_may_come_in_parts() -> None:
    assert not broken(server(published(1), published(2), stored(1), stored(2)))


@pytest.mark.parametrize("how", ["dropped", "purged", "expired"])
def test_ends_must_be_asked_for(how: How) -> None:
    assert broken(server(published(1), ended(how))) == {"lost"}
    assert not broken(server(Allow(0, "q", how), published(1), ended(how), stored()))
    assert broken(server(Allow(0, "other", how), published(1), ended(how))) == {"lost"}


def test_an_overflow_policy_asks_for_drops_and_a_ttl_for_expiry() -> None:
    policy = QueueSet(0, "q", overflow="drop_oldest")
    assert not broken(server(policy, published(1), ended("dropped")))
    assert not broken(server(published(1, expires=True), ended("expired")))


def test_acked_needs_an_ack() -> None:
    assert broken(server(OUT, ended("acked"))) == {"lost"}
    asked, answered = settle(10, "r1")
    assert not broken(server(OUT, asked, ended("acked"), answered, stored()))
    assert broken(server(OUT, asked, void(1), ended("acked"))) == {"lost"}


def test_a_subscription_without_acks_may_lose_one_in_a_crash() -> None:
    sub = Subscribe(0, "n", "S", "q", 0, True)
    assert not broken(server(sub, published(1), ended("acked"), CRASH, stored()))
    asked, answered = settle(10, "r1")
    assert not broken(server(sub, OUT, asked, ended("acked"), answered, stored()))


@pytest.mark.parametrize("ttl_ms", [CLOCKS_MS + 1, 3_600_000])
def test_nothing_expires_before_its_time_but_for_what_clocks_may_be_wrong_by(ttl_ms: int) -> None:
    history = server(published(1, at=1_000, expires=True, ttl_ms=ttl_ms))
    due = 1_000 + ttl_ms - CLOCKS_MS
    assert broken([*history, Ended(due - 1, "q", "m1", "expired")]) == {"lost"}
    assert not broken([*history, Ended(due, "q", "m1", "expired")])
    early = Leaving(due - 1, "q", "m1", "expired", "q.dead")
    assert "dead_cause" in broken([*history, early])
    late = Leaving(due, "q", "m1", "expired", "q.dead")
    assert "dead_cause" not in broken([*history, late])


def test_a_message_with_an_unknown_outcome_may_end_unseen() -> None:
    assert not broken(server(UNKNOWN, ended("expired"), stored()))
    again = [Publish(0, 2, "q", "u1"), Published(0, 2, "m1")]
    assert not broken(server(UNKNOWN, ended("expired"), again, stored()))


def test_an_end_is_final() -> None:
    expired = server(published(1, expires=True), ended("expired"))
    later: list[Event] = [ended("expired"), ended("acked"), stored(1)]
    later.append(Leaving(0, "q", "m1", "expired", "q.dead"))
    for event in later:
        assert broken([*expired, event]) == {"ended_twice"}, event


# in_flight


@pytest.mark.parametrize(
    "over",
    [
        [void(1)],
        [LeaseLost(0, "r1")],
        [Settle(0, 10, "nack", "r1")],
        CRASH,
    ],
)
def test_what_came_back_may_expire(over: History) -> None:
    history = server(published(1, expires=True), grant(1, "r1"))
    assert broken([*history, ended("expired")]) == {"in_flight"}
    assert not broken([*history, *over, ended("expired")])


def test_overflow_does_not_touch_what_is_out() -> None:
    leaving = Leaving(0, "q", "m1", "overflow", "q.dead")
    policy = QueueSet(0, "q", overflow="dead_letter")
    assert broken(server(policy, OUT, leaving)) == {"in_flight"}
    assert not broken(server(policy, published(1), leaving))


# dead_cause


def died(cause: str, *before: Event) -> set[str]:
    return broken(server(*before, Leaving(0, "q", "m1", cause, "q.dead")))


def test_max_attempts_needs_that_many() -> None:
    config = QueueSet(0, "q", max_attempts=2)
    second = grant(1, "r2", E1 + 2, 2)
    assert died("max_attempts", config, *OUT) == {"dead_cause"}
    assert died("max_attempts", config, *OUT, void(1), second) == set()
    # Lowered on the way, and raised again.
    lower, higher = QueueSet(0, "q", max_attempts=1), QueueSet(0, "q", max_attempts=9)
    assert died("max_attempts", config, lower, *OUT) == set()
    assert died("max_attempts", config, higher, *OUT, void(1), second) == set()


def test_max_deliveries_needs_that_many() -> None:
    config = QueueSet(0, "q", max_deliveries=2)
    reserved = [*published(1), grant(1, "r1", reserved=True, sub="s")]
    second = [void(1, attempts=0), grant(1, "r2", E1 + 2, reserved=True, sub="s")]
    assert died("max_deliveries", config, *reserved, *second) == {"dead_cause"}
    broke = Detach(0, "s")
    assert died("max_deliveries", config, *reserved, broke) == {"dead_cause"}
    assert died("max_deliveries", config, *reserved, broke, *second) == set()
    assert died("max_deliveries", config, *reserved, broke, Resume(0, "s"), *second) == {
        "dead_cause"
    }
    started = Start(0, "r2")
    assert died("max_deliveries", config, *reserved, broke, *second, started) == {"dead_cause"}


def test_expired_needs_a_ttl_or_a_retention() -> None:
    assert died("expired", *published(1)) == {"dead_cause"}
    assert died("expired", *published(1, expires=True)) == set()
    assert died("expired", Allow(0, "q", "expired"), *published(1)) == set()
    assert died("expired", *UNKNOWN) == set()


def test_rejected_needs_a_reject() -> None:
    assert died("rejected", *OUT, Settle(0, 10, "nack", "r1")) == {"dead_cause"}
    assert died("rejected", *OUT, Settle(0, 10, "reject", "r1")) == set()


def test_damaged_needs_damage() -> None:
    assert died("damaged", *published(1)) == {"dead_cause"}
    assert died("damaged", Fault(0, "damage"), *published(1)) == set()


@pytest.mark.parametrize("cause", ["overflow", "late", "no_queue", "redriven", "fanout"])
def test_other_causes_must_be_asked_for(cause: str) -> None:
    assert died(cause, *published(1)) == {"dead_cause"}
    assert died(cause, Allow(0, "q", cause), *published(1)) == set()


def test_a_cause_that_nobody_knows() -> None:
    assert died("boredom", Allow(0, "q", "boredom"), *published(1)) == {"dead_cause"}


def test_dead_letters_may_go_nowhere() -> None:
    assert broken(server(NOWHERE, OUT, ended("dead", "rejected"))) == {"dead_cause"}
    asked = Settle(0, 10, "reject", "r1")
    assert not broken(server(NOWHERE, OUT, asked, ended("dead", "rejected"), stored()))


# transfer


def test_a_dead_letter_lives_on_in_its_queue() -> None:
    history = server(REJECTED, MOVED, DEAD, stored())
    assert broken([*history, Stored(0, "q.dead")]) == {"lost"}
    there = grant(1, "r2", queue="q.dead", id="x1")
    assert not broken([*history, there, *settle(11, "r2"), Stored(0, "q.dead")])
    assert broken([*history, there, *settle(11, "r2"), grant(1, "r3", queue="q", id="m1")]) == {
        "grant_after_end"
    }


def test_a_crash_may_come_between_any_two_steps() -> None:
    assert not broken(server(REJECTED, CRASH, MOVED, DEAD, stored()))
    assert not broken(server(REJECTED, MOVED, CRASH, MOVED, DEAD, stored()))
    assert not broken(server(REJECTED, REJECTED[-1], MOVED, REJECTED[-1], DEAD, MOVED, stored()))
    # The last step may be durable though nobody heard of it.
    assert not broken(server(REJECTED, MOVED, CRASH, stored()))
    assert broken(server(REJECTED, CRASH, stored())) == {"lost"}


def test_a_leaving_message_is_not_granted() -> None:
    assert broken(server(REJECTED, grant(1, "r2", E1 + 2, 2))) == {"transfer"}
    assert broken(server(REJECTED, CRASH, grant(1, "r2", E2 + 1, 2))) == {"transfer"}
    assert broken(server(REJECTED, grant(1, "", 0, ack_none=True))) == {"transfer"}


def test_it_is_stored_there_only_after_it_is_leaving() -> None:
    assert broken(server(OUT, void(1), MOVED)) == {"transfer"}
    elsewhere = Moved(0, "q", "m1", "elsewhere", "x1", "u1")
    assert broken(server(REJECTED, elsewhere)) == {"transfer"}
    acked = server(OUT, settle(10, "r1"))
    assert broken([*acked, MOVED]) == {"transfer"}


def test_it_is_stored_there_once() -> None:
    other = Moved(0, "q", "m1", "q.dead", "x2", "u1")
    assert broken(server(REJECTED, MOVED, other)) == {"transfer"}
    late = Moved(TRANSFER_WINDOW_MS + 1, "q", "m1", "q.dead", "x2", "u1")
    assert not broken(server(REJECTED, MOVED, late))
    taken = published(7, queue="q.dead", id="x1")
    assert broken(server(taken, REJECTED, MOVED)) == {"transfer"}


def test_it_keeps_its_body() -> None:
    assert broken(server(REJECTED, Moved(0, "q", "m1", "q.dead", "x1", "u2"))) == {"phantom"}
    moved = server(REJECTED, MOVED, DEAD)
    assert broken([*moved, grant(2, "r2", queue="q.dead", id="x1")]) == {"phantom"}


def test_it_may_go_to_many() -> None:
    fan = [Leaving(0, "topic", "m1", "fanout", to) for to in ("a", "b")]
    moves = [Moved(0, "topic", "m1", to, f"{to}1", "u1") for to in ("a", "b")]
    history = server(Allow(0, "topic", "fanout"), published(1, queue="topic"), fan)
    done = Ended(0, "topic", "m1", "moved")
    assert not broken([*history, *moves, done])
    assert broken([*history, moves[0], done]) == {"transfer"}


def test_without_leaving_it_cannot_be_dead() -> None:
    assert broken(server(OUT, Settle(0, 10, "reject", "r1"), DEAD)) == {"transfer"}
    assert broken(server(NOWHERE, OUT, void(1), ended("redriven"))) == {"transfer"}


def test_a_message_with_an_unknown_outcome_is_named_by_its_transfer() -> None:
    leaving = Leaving(0, "q", "m1", "expired", "q.dead")
    there = grant(1, "r2", queue="q.dead", id="x1")
    assert not broken(server(UNKNOWN, leaving, MOVED, DEAD, there))
    assert broken(server(leaving, MOVED)) == {"phantom"}
    assert broken(server(leaving, grant(1, "r1"))) == {"phantom"}


def test_redriven_messages_come_back_under_a_new_id() -> None:
    history = server(Allow(0, "q.dead", "redriven"), REJECTED, MOVED, DEAD)
    history += [
        Leaving(0, "q.dead", "x1", "redriven", "q"),
        Moved(0, "q.dead", "x1", "q", "m2", "u1", 2),
        Ended(0, "q.dead", "x1", "redriven"),
        grant(1, "r2", id="m2"),
        *settle(11, "r2"),
    ]
    assert not broken([*history, stored(), Stored(0, "q.dead")])


# drain


def test_a_drained_queue_is_empty() -> None:
    quiesce = Quiesce(0, ["q"], 100)
    assert not broken(server(OUT, quiesce, settle(10, "r1"), Drained(50)))
    assert broken(server(OUT, quiesce, Drained(50))) == {"lost"}
    assert broken(server(OUT, quiesce, Drained(50, 1))) == {"drain"}
    assert broken(server(OUT, quiesce, Drained(50), stored(1))) == {"drain"}
    assert broken(server(OUT, quiesce)) == {"drain"}


def test_nothing_drains_unasked() -> None:
    assert broken(server(Drained(0))) == {"malformed"}


@pytest.mark.parametrize(
    "history",
    [
        server(Drained(0)),
        server(Quiesce(0, ["q"], 5)),
        server(Quiesce(0, ["q"], 5), Drained(6)),
        server(Quiesce(0, ["q"], 5), Drained(1, left=2)),
    ],
)
def test_what_is_said_of_all_is_not_held_against_a_part(history: History) -> None:
    part = Checker(part=True)
    for event in history:
        part.feed(event)
    assert part.finish().ok
    assert not check(history).ok


def test_what_is_said_of_a_message_is_held_against_a_part() -> None:
    part = Checker(part=True)
    for event in server(published(1), Quiesce(0, ["q"], 5), Drained(0), stored(1)):
        part.feed(event)
    assert part.finish().broken == {"drain": 1}


# What comes back


REDRIVEN: History = [
    *published(1),
    Allow(0, "q", "redriven"),
    Leaving(0, "q", "m1", "redriven", "other", 1),
]


def test_a_message_that_was_refused_may_come_back() -> None:
    back = server(REDRIVEN, void(1, 0, 0, 0), grant(1, "r1"), settle(10, "r1"))
    assert not broken(back)


def test_what_is_stored_there_may_not_come_back() -> None:
    moved = Moved(0, "q", "m1", "other", "x1", "u1", 1)
    assert broken(server(REDRIVEN, moved, void(1, 0, 0, 0))) == {"transfer"}
    parked = Leaving(0, "q", "m1", "redriven", "")
    assert broken(server(REDRIVEN, moved, parked)) == {"transfer"}


def test_unless_that_queue_is_deleted() -> None:
    moved = Moved(0, "q", "m1", "other", "x1", "u1", 1)
    assert not broken(server(REDRIVEN, moved, void(1, 0, 0, 0), Deleted(0, "other")))


def test_a_dead_letter_that_was_parked_may_go_elsewhere() -> None:
    parked = Leaving(0, "q", "m1", "rejected", "")
    again = Leaving(0, "q", "m1", "rejected", "grave", 2)
    moved = Moved(0, "q", "m1", "grave", "x1", "u1", 1)
    assert not broken(server(REJECTED, parked, again, moved, DEAD))
    assert broken(server(REJECTED, parked, again, MOVED, DEAD)) == {"transfer"}


@pytest.mark.parametrize(("first", "second", "rules"), [(1, 2, set()), (2, 1, {"key_order"})])
def test_those_of_a_key_arrive_in_the_order_in_which_they_left(
    first: int, second: int, rules: set[str]
) -> None:
    events = [
        *published(1, key="k"),
        *published(2, key="k"),
        Allow(0, "q", "redriven"),
        Leaving(0, "q", "m1", "redriven", "other", first),
        Leaving(0, "q", "m2", "redriven", "other", second),
        Moved(0, "q", "m1", "other", "x1", "u1", 1),
        Moved(0, "q", "m2", "other", "x2", "u2", 2),
    ]
    assert broken(server(events)) == rules
