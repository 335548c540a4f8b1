"""Liveness: stalled; and what becomes of a queue that is deleted."""

from pushlane_history.event import (
    Begin,
    Deleted,
    Ended,
    Idle,
    Leaving,
    Open,
    Publish,
    Published,
    PublishFailed,
    Subscribe,
    Void,
)
from tests.history.tools import (
    E1,
    History,
    broken,
    grant,
    published,
    server,
    settle,
    stored,
    void,
)

SUB = Subscribe(0, "s", "S", "q", 2)
IDLE = Idle(100, "s", "q", 50)


def stalled(*events: object) -> bool:
    found = broken(server(SUB, *events, IDLE))  # type: ignore[arg-type]
    assert found <= {"stalled"}, found
    return bool(found)


def test_nothing_ready_is_nothing_to_complain_of() -> None:
    assert not stalled()
    assert not stalled(published(1, queue="other"))
    assert not stalled(published(1), grant(1, "r1"), settle(10, "r1"))


def test_what_was_ready_all_the_time_should_have_come() -> None:
    assert stalled(published(1, at=50))
    assert not stalled(published(1, at=51)), "it came later"


def test_credit_must_be_left() -> None:
    one, two = grant(1, "r1", sub="s"), grant(2, "r2", sub="s")
    assert stalled(published(1), published(2), published(3), one)
    assert not stalled(published(1), published(2), published(3), one, two)


def test_who_needs_no_acks_can_always_hold_more() -> None:
    hungry = Subscribe(0, "s", "S", "q", 0, ack_none=True)
    assert broken(server(hungry, published(1), IDLE)) == {"stalled"}
    assert broken(server(hungry, published(1), Open(0, "n", 1), IDLE)) == {"stalled"}
    assert not broken(server(hungry, published(1, at=51), IDLE))


def test_what_is_out_or_leaves_is_not_ready() -> None:
    assert not stalled(published(1), grant(1, "r1"))
    assert not stalled(published(1, expires=True), Leaving(0, "q", "m1", "expired", "q.dead"))


def test_what_came_back_is_ready_again_after_its_delay() -> None:
    out = [*published(1), grant(1, "r1")]
    assert stalled(out, void(1))
    assert not stalled(out, Void(51, "q", "m1", E1 + 1, 1, 0))
    assert not stalled(out, Void(0, "q", "m1", E1 + 1, 1, 0, delay_ms=51))
    assert stalled(out, Void(0, "q", "m1", E1 + 1, 1, 0, delay_ms=50))


def test_delayed_messages_wait_and_longer_where_clocks_are_wrong() -> None:
    assert stalled(published(1, delay_ms=50))
    assert not stalled(published(1, delay_ms=51))
    late = Idle(100, "s", "q", 50, slack_ms=20)
    assert not broken(server(SUB, published(1, delay_ms=50), late))
    assert broken(server(SUB, published(1, delay_ms=30), late)) == {"stalled"}
    assert broken(server(SUB, published(1), late)) == {"stalled"}, "it has no delay"


def test_the_delay_of_what_a_crash_undid_counts_from_its_repeat() -> None:
    for at, found in ((20, False), (10, True)):
        first = Publish(0, 9, "q", "u1", delay_ms=40)
        again = Publish(at, 1, "q", "u1", delay_ms=40)
        answers = [PublishFailed(5, 9, "connection_lost"), again, Published(at, 1, "m1", seq=1)]
        assert stalled([first, *answers]) is found


def test_of_a_key_only_the_first_is_ready_and_since_its_turn() -> None:
    pair = [*published(1, key="k"), *published(2, key="k")]
    held = [*pair, grant(1, "r1")]
    assert stalled(pair)
    assert not stalled(held)
    asked = settle(10, "r1", result="unknown")
    assert stalled(held, asked, Ended(50, "q", "m1", "acked"))
    assert not stalled(held, asked, Ended(51, "q", "m1", "acked"))
    left = Leaving(50, "q", "m1", "rejected", "q.dead")
    rejected = [*held, *settle(10, "r1", "reject", "unknown")]
    assert stalled(rejected, left)
    assert not stalled(rejected, Leaving(51, "q", "m1", "rejected", "q.dead"))


def test_of_a_key_whose_place_nobody_saw_nothing_is_said() -> None:
    assert not stalled([Publish(0, 1, "q", "u1", "k"), Published(0, 1, "m1")])


def test_a_new_owner_begins_anew() -> None:
    assert not stalled(published(1), Open(51, "n2", 2))
    assert stalled(published(1), Open(50, "n2", 2))


def test_who_is_not_subscribed_cannot_complain() -> None:
    assert not broken(server(published(1), IDLE))


# deleted

DELETED = Deleted(50, "q")


def test_what_was_stored_goes_with_its_queue() -> None:
    assert not broken(server(published(1), DELETED))


def test_an_answer_may_be_late_but_not_its_question() -> None:
    asked = Publish(0, 1, "q", "u1")
    assert not broken(server(asked, DELETED, Published(60, 1, "m1", seq=1)))
    assert broken(server(DELETED, asked, Published(60, 1, "m1", seq=1))) == {"deleted"}


def test_nothing_is_granted_any_more() -> None:
    assert broken(server(published(1), DELETED, grant(1, "r1"))) == {"deleted"}


def test_a_zombie_may_not_know_it() -> None:
    history: History = [*published(1), Open(0, "n2", 2), DELETED, grant(1, "r1")]
    assert not broken(server(history))


def test_made_again_it_has_another_label() -> None:
    again = [Publish(60, 2, "q~1", "u2"), Published(60, 2, "m2", seq=1)]
    dump = stored(2, queue="q~1")
    assert not broken(server(published(1), DELETED, again, dump))


def test_clients_know_it_too() -> None:
    history: History = [Begin(0, "client"), *published(1), DELETED, *published(2)]
    assert broken(history) == {"deleted"}
