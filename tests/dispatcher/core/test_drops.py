"""Drained buckets: kept while their marks are needed, and a few of them a little longer."""

import msgspec

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_storage.message import TRANSFER, Message
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import Rig


def make_rig(keep: int = 2, **bounds: int) -> Rig:
    rig = Rig(
        QueueConfig(dedup_window_ms=1_000),
        Bounds(bucket_messages=1, drained_buckets=keep, **bounds),
    )
    rig.subscribe()
    return rig


def drain(rig: Rig, *messages: Message) -> None:
    """A bucket for each, acked; a last message closes the last of them, and stays."""
    (consumer,) = rig.consumers.values()
    for message in messages:
        rig.send([message])
        consumer.ack(*consumer.numbers)
        consumer.take()
    consumer.credit(0)
    rig.send([Message(b"last", rig.wall)])


def test_a_few_are_kept_for_their_window_and_the_rest_goes_at_once() -> None:
    rig = make_rig()
    drain(rig, *[Message(b"x", rig.wall)] * 5)
    assert len(rig.drops) == 3
    rig.wait(999)
    assert len(rig.drops) == 3
    rig.wait(1)
    assert len(rig.drops) == 5


def test_ids_keep_all_of_them() -> None:
    rig = make_rig()
    drain(rig, *(Message(b"x", rig.wall, dedup=str(n)) for n in range(5)))
    assert rig.drops == []
    rig.wait(1_000)
    assert len(rig.drops) == 5


def test_transfers_keep_them_for_a_day() -> None:
    rig = make_rig()
    drain(rig, *(Message(b"x", rig.wall, dedup=f"{TRANSFER}{n}") for n in range(5)))
    rig.wait(TRANSFER_WINDOW_MS - 1)
    assert rig.drops == []
    rig.wait(1)
    assert len(rig.drops) == 5


def numbered(rig: Rig, count: int) -> list[Message]:
    return [Message(b"x", rig.wall, producer="p", producer_seq=n) for n in range(1, count + 1)]


def test_numbers_keep_those_with_a_producers_newest() -> None:
    rig = make_rig(producer_seqs=3)
    drain(rig, *numbered(rig, 20))
    assert 14 <= len(rig.drops) <= 17
    rig.crash()
    for message in numbered(rig, 20)[-3:]:
        assert rig.send([message]).duplicates


def test_a_new_owner_refuses_numbers_that_went_with_their_bucket() -> None:
    rig = make_rig(producer_seqs=3)
    drain(rig, *numbered(rig, 20))
    rig.crash()
    for message in numbered(rig, 20):
        ticket = rig.send([message])
        assert 0 in ticket.duplicates


def test_a_new_number_in_an_old_bucket_keeps_it() -> None:
    rig = make_rig(keep=99, producer_seqs=3)
    messages = numbered(rig, 9)
    drain(rig, messages[8])
    rig.crash()
    rig.subscribe()
    drain(rig, *messages[2:8])
    rig.bounds = msgspec.structs.replace(rig.bounds, drained_buckets=0)
    rig.crash()  # the newest buckets have enough numbers: of the oldest it knows how far it goes
    assert rig.send([messages[8]]).duplicates == {0: None}
    rig.crash()
    ticket = rig.send([messages[8]])
    assert 0 in ticket.duplicates


def test_too_many_producers_keep_them() -> None:
    rig = make_rig(bucket_producers=0)
    drain(rig, *numbered(rig, 6))
    assert rig.drops == []


def test_what_a_predecessor_drained_is_dropped_likewise() -> None:
    rig = make_rig(keep=9)
    drain(rig, *[Message(b"x", rig.wall)] * 5)
    assert rig.drops == []
    rig.bounds = msgspec.structs.replace(rig.bounds, drained_buckets=1)
    rig.crash()
    assert len(rig.drops) == 4


def test_a_new_owner_keeps_those_with_a_producers_newest() -> None:
    rig = make_rig(keep=99, producer_seqs=3)
    drain(rig, *numbered(rig, 6))
    rig.bounds = msgspec.structs.replace(rig.bounds, drained_buckets=1)
    rig.crash()
    rig.crash()
    for message in numbered(rig, 6)[-3:]:
        assert rig.send([message]).duplicates
