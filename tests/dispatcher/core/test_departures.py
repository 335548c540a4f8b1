"""Departures: a durable row here, an append there, then the settle here. Never lost."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.dedup import TRANSFER
from pushlane_dispatcher.core.effects import Fetch, Settle, Transfer
from pushlane_dispatcher.core.ident import make_id
from pushlane_storage.message import Dead
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig


def rejected(rig: Rig, *bodies: str) -> list[int]:
    """Publish messages and have a consumer reject them; answers their seqs."""
    consumer = rig.subscribe(100)
    ticket = rig.publish(*bodies)
    consumer.nack(*consumer.numbers, dead=True, error="bad")
    consumer.end()
    return ticket.seqs


def moved(rig: Rig) -> list[str]:
    return [transfer.message.body.decode() for transfer in rig.transfers]


def test_a_dead_letter_says_why_and_where_from() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    ticket = rig.publish("a", key="k", headers={"h": "v"}, is_data=True, event_at=5)
    rig.wait(100)
    consumer.nack(1, dead=True, error="bad")
    (transfer,) = rig.transfers
    message_id = make_id("q1", 0, LANE, ticket.seqs[0])
    assert transfer.to == "q.dead"
    assert transfer.dedup == transfer.message.dedup == TRANSFER + message_id
    message = transfer.message
    assert message.dead == Dead("rejected", "q", message_id, 1, "bad", rig.wall)
    assert (message.body, message.key, message.headers) == (b"a", "k", {"h": "v"})
    assert (message.is_data, message.event_at, message.published_at) == (True, 5, rig.wall)
    assert (message.not_before, message.expires_at, message.producer) == (0, 0, None)


def test_the_leaving_row_is_durable_before_it_goes() -> None:
    rig = Rig()
    rig.hold = {Settle, Transfer}
    (seq,) = rejected(rig, "a")
    assert rig.held(Transfer) == []
    assert rig.explain(seq).why == "it leaves: rejected"
    rig.finish(*rig.held(Settle))
    assert len(rig.held(Transfer)) == 1


def test_it_is_settled_here_only_when_it_is_stored_there() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    (seq,) = rejected(rig, "a")
    assert (rig.state(seq), rig.stats.stored, rig.stats.dead) == ("leaving", 1, 0)
    rig.hold = {Settle}
    rig.finish(*rig.held(Transfer))
    assert (rig.state(seq), rig.stats.stored) == ("leaving", 1)
    rig.hold = set()
    rig.finish()
    assert (rig.state(seq), rig.stats.stored, rig.stats.dead) == ("dead", 0, 1)
    assert rig.explain(seq).why == "it went to the dead letters: rejected"


def test_what_leaves_is_never_granted_again() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    rejected(rig, "a")
    other = rig.subscribe()
    rig.wait(600_000)
    rig.crash()
    assert other.bodies == rig.subscribe().bodies == []


def test_a_refused_transfer_is_tried_again_for_ever() -> None:
    rig = Rig(bounds=Bounds(transfer_retry_ms=1_000))
    rig.refusing = True
    rejected(rig, "a", "b")
    rig.wait(60_000)
    assert (rig.stats.leaving, rig.transfers) == (2, [])
    rig.refusing = False
    rig.wait(999)
    assert moved(rig) == []
    rig.wait(1)
    assert moved(rig) == ["a", "b"]
    assert rig.stats.stored == 0


@pytest.mark.parametrize("stored_there", [False, True])
def test_a_new_owner_goes_on_with_it_under_the_same_id(stored_there: bool) -> None:
    rig = Rig()
    rig.hold = {Transfer}
    rejected(rig, "a")
    (old,) = rig.held(Transfer)
    if stored_there:
        rig.land(old)
    rig.hold = set()
    rig.crash()
    new = rig.transfers[-1]
    assert (new.dedup, new.to, new.message.body) == (old.dedup, old.to, old.message.body)
    assert new.message.dead is not None
    assert (new.message.dead.cause, new.message.dead.error) == ("rejected", "bad")
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_what_was_settled_is_not_sent_by_a_new_owner() -> None:
    rig = Rig()
    rejected(rig, "a")
    rig.crash()
    assert moved(rig) == ["a"]


def test_transfers_under_way_are_bounded() -> None:
    rig = Rig(bounds=Bounds(transfers=2))
    rig.hold = {Transfer}
    rejected(rig, *"abcde")
    assert len(rig.held(Transfer)) == 2
    rig.finish(rig.held(Transfer)[0])
    assert len(rig.held(Transfer)) == 2
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a", "b", "c", "d", "e"]


def test_bodies_read_again_for_transfers_are_bounded() -> None:
    rig = Rig(bounds=Bounds(transfers=2, window_messages=4))
    rig.refusing = True
    rejected(rig, *"abcdefgh")
    rig.crash()
    assert rig.shard.window.resident <= 4
    rig.hold = {Fetch}
    rig.wait(1_000)
    reading = [entry for fetch in rig.held(Fetch) for entry in fetch.entries]
    assert len(reading) <= 2
    rig.refusing = False
    rig.hold = set()
    rig.finish()
    rig.wait(2_000)
    assert sorted(moved(rig)) == list("abcdefgh")


def test_those_that_wait_leave_room_for_others() -> None:
    rig = Rig(QueueConfig(), Bounds(window_messages=4, page_messages=4, segment_messages=1))
    rig.refusing = True
    rig.publish(*"abcd", expires_at=rig.wall + 1_000)
    rig.wait(1_000)
    assert rig.stats.leaving == 4
    rig.publish(*"efgh")
    consumer = rig.subscribe()
    rig.wait(10_000)
    assert consumer.bodies == ["e", "f", "g", "h"]


def test_what_was_stored_there_needs_its_body_no_more() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    rejected(rig, *"abc")
    rig.hold = {Settle}
    rig.finish(*rig.held(Transfer))
    assert (rig.stats.leaving, rig.shard.window.resident) == (3, 0)


def test_a_body_that_was_wanted_before_it_left_is_no_second_departure() -> None:
    rig = Rig(bounds=Bounds(window_messages=1))
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Fetch}
    consumer.detach()
    consumer.resume()
    rig.hold = {Fetch, Settle}
    consumer.nack(1, dead=True)
    rig.finish(*rig.held(Fetch))
    assert rig.held(Transfer) == [], "its row is not durable yet"
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a"]
    assert rig.stats.dead == 1


def test_a_body_that_is_lost_ends_it_here() -> None:
    rig = Rig(bounds=Bounds(transfers=1))
    rig.hold = {Transfer}
    seqs = rejected(rig, "a", "b")
    rig.damaged = {seqs[0]}
    rig.hold = set()
    rig.crash()
    assert moved(rig) == ["b"]
    assert (rig.stats.dead, rig.stats.stored) == (2, 0)
