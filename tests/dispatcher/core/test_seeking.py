"""A key's backlog of any length: most of it is passed over, found again, and in nobody's way."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer
from tests.dispatcher.core.harness import LANE, Rig
from tests.redriving import redrive_first

FEW = Bounds(
    window_messages=20, key_positions=3, positions=6, page_messages=8, segment_messages=2,
    bucket_messages=10,
)  # fmt: skip


def names(count: int, first: str = "") -> list[str]:
    return [f"{first}{number:03}" for number in range(count)]


def drain(rig: Rig, consumer: Consumer) -> list[str]:
    """Ack whatever comes until nothing comes any more."""
    bodies: list[str] = []
    while consumer.inbox:
        inbox, consumer.inbox = consumer.inbox, []
        bodies += [got.body for got in inbox]
        consumer.ack(*[got.n for got in inbox])
    return bodies


@pytest.fixture
def rig() -> Rig:
    return Rig(bounds=FEW)


def test_a_backlog_of_one_key_holds_up_nobody(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(100), key="hot")
    assert (rig.stats.blocked, rig.stats.ready, len(rig.shard.window.lanes[LANE].entries)) == (
        99, 0, 4,
    )  # fmt: skip
    rig.publish("other", key="cold")
    rig.publish("first", lane=9)
    assert consumer.take() == ["000", "other", "first"]


def test_it_comes_in_order_and_whole(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(100), key="hot")
    assert drain(rig, consumer) == names(100)
    assert (rig.stats.stored, len(rig.shard.window.keys.known), rig.stats.blocked) == (0, 0, 0)


def test_it_is_read_once_or_twice_in_all(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(200), key="hot")
    rig.reads = []
    assert drain(rig, consumer) == names(200)
    pages = [read for read in rig.reads if isinstance(read, Page)]
    assert len(pages) <= 200 // FEW.key_positions


def test_several_keys_share_the_room_and_their_reads(rig: Rig) -> None:
    consumer = rig.subscribe(10)
    for number in range(40):
        for key in "abc":
            rig.publish(f"{key}{number:03}", key=key)
    assert rig.shard.window.keys.kept <= FEW.positions
    got = drain(rig, consumer)
    for key in "abc":
        assert [body for body in got if body.startswith(key)] == names(40, key)


def test_one_whose_next_message_is_far_away_is_found(rig: Rig) -> None:
    consumer = rig.subscribe(10)
    rig.publish(*names(5, "k"), key="k")
    rig.publish(*names(60, "other"))
    rig.publish("last", key="k")
    got = drain(rig, consumer)
    assert [body for body in got if "other" not in body] == [*names(5, "k"), "last"]


def test_what_is_published_while_its_key_is_sought_waits_its_turn(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(5), key="k")
    for n in range(1, 4):
        consumer.ack(n)
    rig.hold = {Page}
    consumer.ack(4)
    (page,) = rig.held(Page)
    rig.publish("late", key="k")
    assert rig.stats.blocked == 2
    rig.hold = set()
    rig.finish(page)
    drain(rig, consumer)
    assert rig.stats.stored == 0
    rig.publish("next", key="k")
    assert consumer.take() == ["next"], "nothing is left to be looked for"


def test_after_a_crash_too(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(50), key="hot")
    for n in range(1, 11):
        consumer.ack(n)
    rig.crash()
    assert rig.stats.blocked == 39
    assert drain(rig, rig.subscribe(5)) == names(50)[10:]


def test_a_purge_takes_what_was_passed_over(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(50), key="hot")
    for n in range(1, 4):
        consumer.ack(n)
    rig.hold = {Page}
    consumer.ack(4)
    (page,) = rig.held(Page)
    rig.purge()
    rig.publish("new", key="hot")
    rig.hold = set()
    rig.finish(page)
    assert (rig.stats.blocked, rig.stats.stored) == (0, 1)
    assert consumer.bodies[4:] == ["new"]


def test_what_was_passed_over_is_explained(rig: Rig) -> None:
    rig.subscribe(1)
    seqs = rig.publish(*names(20), key="hot").seqs
    far = rig.publish("far", not_before=rig.wall + 10**7).seqs[0]
    explained = rig.explain(seqs[-1])
    assert (explained.state, explained.why) == (
        "blocked", "an earlier message with its key has not ended",
    )  # fmt: skip
    assert explained.blocked_by == rig.explain(seqs[1]).blocked_by is not None
    assert rig.explain(far).state == "delayed"
    assert rig.shard.explain(LANE, seqs[-1], rig.now).state == "blocked", (
        "without its message, by the count"
    )
    assert rig.shard.explain(LANE, far, rig.now).state == "delayed"


def test_it_is_explained_while_its_key_is_sought(rig: Rig) -> None:
    consumer = rig.subscribe(1)
    seqs = rig.publish(*names(20), key="hot").seqs
    for n in range(1, 4):
        consumer.ack(n)
    rig.hold = {Page}
    consumer.ack(4)
    assert (rig.explain(seqs[-1]).state, rig.explain(seqs[-1]).blocked_by) == ("blocked", None)


def test_it_can_be_redriven(rig: Rig) -> None:
    rig.subscribe(1)
    rig.publish(*names(20), key="hot")
    assert redrive_first(rig.shard, 100, "elsewhere", rig.now) == 19
    rig.run()
    assert sorted(transfer.message.body.decode() for transfer in rig.transfers) == names(20)[1:]
    assert (rig.stats.stored, rig.stats.blocked) == (1, 0)


def test_it_can_be_past_its_retention() -> None:
    rig = Rig(QueueConfig(), FEW)
    rig.subscribe(1, lease_ms=10**7)
    rig.publish(*names(30), key="hot")
    rig.publish("far", not_before=rig.wall + 10**7)
    rig.configure(retention_ms=60_000)
    rig.wait(600_000)
    rig.wait(600_000)
    assert (rig.stats.expired, rig.stats.stored) == (30, 1)


def test_what_the_store_lost_of_it_ends_as_damaged(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    seqs = rig.publish(*names(10), key="hot").seqs
    for n in range(1, 4):
        consumer.ack(n)
    rig.hold = {Page}
    consumer.ack(4)
    (page,) = rig.held(Page)
    rig.waiting.remove(page)
    rig.hold = set()
    segments = rig.tables.segments(rig.key, page.bucket, page.start, page.limit)
    rig.answer(page, [segment for segment in segments if seqs[6] not in _seqs(segment)])
    rig.run()
    assert drain(rig, consumer) == [
        name for name, seq in zip(names(10), seqs, strict=True) if seq not in (seqs[6], seqs[7])
    ]
    assert (rig.stats.dead, rig.stats.stored) == (2, 0)


def _seqs(segment: object) -> range:
    first, messages = segment.first, segment.messages  # type: ignore[attr-defined]
    return range(first, first + len(messages))


def test_a_read_of_a_bucket_that_was_drained_meanwhile_is_let_go() -> None:
    rig = Rig(bounds=Bounds(key_positions=1, bucket_messages=1, segment_messages=1))
    consumer = rig.subscribe(5)
    rig.publish(*names(4), key="hot")
    consumer.ack(1)
    rig.hold = {Page}
    consumer.ack(2)
    (page,) = rig.held(Page)
    assert redrive_first(rig.shard, 1, "elsewhere", rig.now) == 1
    rig.hold = set()
    rig.run()
    assert consumer.bodies == ["000", "001", "003"]
    assert page.start


def test_no_more_is_read_while_a_purge_is_written(rig: Rig) -> None:
    consumer = rig.subscribe(5)
    rig.publish(*names(10), key="hot")
    for n in range(1, 4):
        consumer.ack(n)
    rig.hold = {Settle}
    consumer.ack(4)
    rig.purge()
    rig.publish(*names(6, "new"), key="hot")
    rig.hold = set()
    rig.finish()
    assert drain(rig, consumer)[-6:] == names(6, "new")
