"""Publishing: phantom, unacked_unknown, dedup, and what an answer may name."""

from typing import Any

import pytest

from pushlane_history import ledger
from pushlane_history.checker import Checker, check
from pushlane_history.event import (
    Allow,
    Ended,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Stored,
)
from pushlane_history.publishing import PRODUCER_WINDOW
from tests.history.tools import (
    E1,
    History,
    broken,
    grant,
    published,
    server,
    settle,
    stored,
)

PURGE = Allow(0, "q", "purged")


def unknown(n: int, **fields: Any) -> History:
    """Message n, published with an unknown outcome."""
    return [
        Publish(0, n, "q", fields.pop("uid", f"u{n}"), **fields),
        PublishFailed(0, n, "connection_lost"),
    ]


def again(op: int, id: str, duplicate: bool = True, at: int = 0, **fields: Any) -> History:
    return [
        Publish(at, op, "q", fields.pop("uid", "u1"), **fields),
        Published(at, op, id, duplicate),
    ]


# phantom, unacked_unknown


def test_a_message_may_be_granted_before_its_publish_is_answered() -> None:
    asked, answered = published(1)
    assert not broken(server(asked, grant(1, "r1"), answered, settle(10, "r1"), stored()))
    assert not broken(server(asked, grant(1, "r1"), settle(10, "r1"), answered, stored()))


def test_what_nobody_published_is_a_phantom() -> None:
    assert broken(server(grant(1, "r1"))) == {"phantom"}
    assert broken(server(stored(1))) == {"phantom"}


def test_a_message_met_in_another_queue_without_a_transfer_is_a_phantom() -> None:
    assert broken(server(published(1), grant(1, "r1", queue="other"))) == {"phantom"}


@pytest.mark.parametrize("code", ["queue_full", "bad_request", "throttled"])
def test_what_was_refused_does_not_exist(code: str) -> None:
    asked, refused = Publish(0, 1, "q", "u1"), PublishFailed(0, 1, code)
    assert not broken(server(asked, refused, stored()))
    assert broken(server(asked, refused, grant(1, "r1"))) == {"phantom"}
    assert broken(server(asked, grant(1, "r1"), refused)) == {"phantom"}


@pytest.mark.parametrize("code", ["unavailable", "internal", "connection_lost"])
def test_an_unknown_outcome_may_be_either(code: str) -> None:
    history = server(Publish(0, 1, "q", "u1"), PublishFailed(0, 1, code))
    assert not broken([*history, stored()])
    assert not broken([*history, stored(1)])
    assert not broken([*history, grant(1, "r1"), *settle(10, "r1"), stored()])


def test_once_it_was_delivered_it_must_not_vanish() -> None:
    assert broken(server(unknown(1), grant(1, "r1"), stored())) == {"lost"}


def test_a_publish_in_flight_stores_once_at_most() -> None:
    twice = [grant(1, "r1"), grant(1, "r2", id="m2")]
    assert broken(server(Publish(0, 1, "q", "u1"), twice)) == {"unacked_unknown"}


def test_an_acknowledged_publish_stores_once() -> None:
    assert broken(server(published(1), grant(1, "r2", id="m2"))) == {"phantom"}


def test_every_repetition_without_an_identity_may_store_another() -> None:
    history = server(unknown(1), again(2, "m2", False))
    assert not broken([*history, Stored(0, "q", ["m1", "m2"], ["u1", "u1"])])
    assert broken([*history, Stored(0, "q", ["m1", "m2", "m3"], ["u1"] * 3)]) == {"unacked_unknown"}


def test_an_answer_with_another_messages_id_is_a_phantom() -> None:
    history = server(published(1), Publish(0, 2, "q", "u2"))
    assert broken([*history, Published(0, 2, "m1")]) == {"phantom"}


def test_an_answer_with_an_ended_messages_id_is_a_phantom() -> None:
    history = server(published(1), grant(1, "r1"), settle(10, "r1"), Publish(0, 2, "q", "u2"))
    assert broken([*history, Published(0, 2, "m1")]) == {"phantom"}


def test_a_message_may_end_before_its_publish_is_answered() -> None:
    asked, answered = published(1)
    purged = Ended(0, "q", "m1", "purged")
    assert not broken(server(PURGE, asked, purged, answered, stored()))


def test_an_answer_without_a_request_is_malformed() -> None:
    assert broken(server(Published(0, 1, "m1"))) == {"malformed"}
    assert broken(server(PublishFailed(0, 1, "internal"))) == {"malformed"}


def test_nothing_is_remembered_of_what_is_over() -> None:
    checker = Checker()
    for event in server(published(1, key="k"), grant(1, "r1"), settle(10, "r1"), unknown(2)):
        checker.feed(event)
    state = checker._ledger
    assert list(state.pubs) == ["u2"]
    assert not state.queues["q"].live
    assert not state.queues["q"].keys["k"].waiting
    assert not state.receipts
    assert not state.settle_ops
    assert not state.publish_ops


# dedup


@pytest.mark.parametrize("identity", [{"dedup": "d"}, {"producer": "p", "producer_seq": 0}])
def test_a_repeat_has_the_first_ones_id(identity: dict[str, Any]) -> None:
    first = published(1, **identity)
    assert not broken(server(first, again(2, "m1", **identity), stored(1)))
    assert broken(server(first, again(2, "m2", False, **identity))) == {"dedup"}
    assert broken(server(first, again(2, "m2", **identity))) == {"dedup"}
    assert broken(server(first, again(2, "m1", False, **identity))) == {"dedup"}


@pytest.mark.parametrize("identity", [{"dedup": "d"}, {"producer": "p", "producer_seq": 0}])
def test_a_repeat_of_an_unknown_one_is_stored_once(identity: dict[str, Any]) -> None:
    first = unknown(1, **identity)
    assert not broken(server(first, again(2, "m1", **identity), grant(1, "r1"), stored(1)))
    assert not broken(server(first, again(2, "m2", False, **identity)))
    twice = Stored(0, "q", ["m1", "m2"], ["u1", "u1"])
    assert broken(server(first, again(2, "m2", False, **identity), twice)) == {"dedup"}


def test_the_answers_of_equal_publishes_may_come_in_any_order() -> None:
    first, second = Publish(0, 1, "q", "u1", dedup="d"), Publish(0, 2, "q", "u2", dedup="d")
    answers = [Published(0, 2, "m1", True), Published(0, 1, "m1")]
    assert not broken(server(first, second, answers, grant(1, "r1")))
    assert not broken(server(first, second, grant(1, "r1"), answers))


def test_a_dedup_id_counts_within_queue_and_key() -> None:
    history = server(published(1, dedup="d", key="k"), published(2, dedup="d", key="l"))
    assert not broken([*history, *published(3, dedup="d", queue="other")])


def test_a_dedup_id_may_be_new_after_its_window() -> None:
    config = QueueSet(0, "q", dedup_window_ms=100)
    history = server(config, published(1, dedup="d"))
    assert broken([*history, *again(2, "m2", False, 99, dedup="d")]) == {"dedup"}
    late = [*history, *again(2, "m2", False, 100, uid="u2", dedup="d")]
    assert not broken(late)
    assert broken([*late, *again(3, "m3", False, 150, dedup="d")]) == {"dedup"}
    # An answer that was given before may come after.
    assert not broken([*late, *again(3, "m1", True, 110, dedup="d")])


def test_a_duplicate_out_of_thin_air_is_lost() -> None:
    assert broken(server(again(1, "m7", dedup="d"), stored())) == {"lost"}


def test_a_dump_may_tell_whose_body_a_duplicates_message_has() -> None:
    history = server(unknown(1, dedup="d"), again(2, "m1", uid="u2", dedup="d"))
    assert not broken([*history, stored(1)])
    assert broken([*history, Stored(0, "q", ["m1"], ["u3"])]) == {"phantom"}


def test_a_duplicate_needs_something_to_be_recognised_by() -> None:
    assert broken(server(unknown(1), again(2, "m1"))) == {"dedup"}
    assert broken(server(published(1), again(2, "m1"))) == {"dedup"}


def test_a_duplicate_without_an_id_was_there_before() -> None:
    first = published(1, producer="p", producer_seq=1)
    nameless = again(2, "", producer="p", producer_seq=1)
    assert not broken(server(first, nameless, stored(1)))
    assert not broken(server(unknown(1, producer="p", producer_seq=1), nameless, stored(1)))
    assert broken(server(nameless)) == {"dedup"}
    other = again(2, "", uid="u2", producer="p", producer_seq=2)
    assert broken(server(first, other)) == {"dedup"}


@pytest.mark.parametrize("identity", [{"dedup": "d"}, {"producer": "p", "producer_seq": 7}])
def test_a_duplicate_of_another_message_is_swallowed(identity: dict[str, Any]) -> None:
    swallowed = again(2, "m1", uid="u2", **identity)
    first = published(1, dedup="other", producer="p", producer_seq=6)
    assert broken(server(first, swallowed)) == {"dedup"}
    ended = [grant(1, "r1"), *settle(10, "r1")]
    assert broken(server(first, ended, swallowed)) == {"dedup"}


@pytest.mark.parametrize("identity", [{"dedup": "d"}, {"producer": "p", "producer_seq": 7}])
def test_a_duplicate_of_an_ended_message_is_fine(identity: dict[str, Any]) -> None:
    first = published(1, **identity)
    ended = [grant(1, "r1"), *settle(10, "r1")]
    assert not broken(server(first, ended, again(2, "m1", uid="u2", **identity)))
    purged = Ended(0, "q", "m1", "purged")
    assert not broken(server(PURGE, unknown(1, **identity), purged, again(2, "m1", **identity)))


def test_a_sequence_and_a_dedup_id_together() -> None:
    config = QueueSet(0, "q", dedup_window_ms=100)
    both: dict[str, Any] = {"dedup": "d", "producer": "p"}
    history = server(config, published(1, producer_seq=1, **both))
    history += again(2, "m2", False, 200, uid="u2", producer_seq=2, **both)
    assert not broken(history)
    # The dedup id stands for m2 now, the sequence for m1: either may be the answer.
    assert not broken([*history, *again(3, "m1", at=210, producer_seq=1, **both)])
    assert not broken([*history, *again(3, "m2", at=210, producer_seq=1, **both)])
    assert broken([*history, *again(3, "m3", False, 210, producer_seq=1, **both)]) == {"dedup"}


def test_dedup_ids_are_forgotten_after_their_window() -> None:
    config = QueueSet(0, "q", dedup_window_ms=100)
    history = server(config)
    for n in range(1, ledger.PRUNE + 3):
        history += [*published(n, at=n, dedup=f"d{n}"), grant(n, f"r{n}")]
        history += settle(100_000 + n, f"r{n}")
    assert not broken(history)
    # A server may remember longer than it must.
    at = ledger.PRUNE + 10
    history += again(200_000, "m1", at=at, uid="u1", dedup="d1")
    assert not broken(history)
    # Who knows since when: a new id is no violation.
    history += again(200_001, "m0", False, at=at, uid="u1", dedup="d1")
    assert not broken(history)


def test_a_dedup_id_may_be_forgotten_before_its_publish_is_answered() -> None:
    config = QueueSet(0, "q", dedup_window_ms=100)
    history = server(config, Publish(0, 99_999, "q", "slow", dedup="slow"))
    for n in range(1, ledger.PRUNE + 3):
        history += [Publish(n, n, "q", f"u{n}", dedup=f"d{n}"), PublishFailed(n, n, "throttled")]
    at = ledger.PRUNE + 10
    history.append(Published(at, 99_999, "m1"))
    assert not broken(history)
    assert not broken([*history, *again(100_000, "m1", at=at, uid="slow", dedup="slow")])


def test_dedup_ids_within_their_window_are_kept() -> None:
    history = server()
    for n in range(1, ledger.PRUNE + 10):
        history += published(n, dedup=f"d{n}")
    assert broken([*history, *again(200_000, "x", False, uid="u1", dedup="d1")]) == {"dedup"}


def test_the_latest_sequences_of_a_producer_are_remembered() -> None:
    history = server()
    for n in range(1, PRODUCER_WINDOW + 2):
        history += published(n, producer="p", producer_seq=n)
    second: dict[str, Any] = {"uid": "u2", "producer": "p", "producer_seq": 2}
    assert broken([*history, *again(5_000, "x", False, **second)]) == {"dedup"}
    forgotten: dict[str, Any] = {"uid": "u1", "producer": "p", "producer_seq": 1}
    assert not broken([*history, *again(5_000, "x", False, **forgotten)])


def test_rare_cases_are_counted() -> None:
    first = published(1, dedup="d")
    report = check(server(first, again(2, "m1", dedup="d"), unknown(3), grant(1, "r", E1 + 1)))
    assert report.notes == {"duplicate": 1, "publish_unknown": 1}
