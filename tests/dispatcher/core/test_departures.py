"""Departures: a durable row here, an append there, then the settle here. Never lost."""

from typing import Any

import pytest

from pushlane.wire.errors import NotFound, PushlaneError, QueueFull, TooLarge, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import Fetch, Page, Settle, Transfer
from pushlane_dispatcher.core.ident import make_id
from pushlane_storage.message import TRANSFER, Dead, Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Leaving, Settlement
from tests.dispatcher.core.harness import LANE, Rig

SOURCE = f"{TRANSFER}q1/0"
"""Who numbers what leaves a rig."""


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
    assert transfer.message.dedup == TRANSFER + message_id
    message = transfer.message
    assert message.dead == Dead("rejected", "q", message_id, 1, "bad", rig.wall)
    assert (message.body, message.key, message.headers) == (b"a", "k", {"h": "v"})
    assert (message.is_data, message.event_at, message.published_at) == (True, 5, rig.wall)
    assert (message.not_before, message.expires_at) == (0, 0)
    assert (message.producer, message.producer_seq) == (SOURCE, make_seq(1, 1))


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
def test_a_new_owner_goes_on_with_it_under_the_same_number(stored_there: bool) -> None:
    rig = Rig()
    rig.hold = {Transfer}
    rejected(rig, "a")
    (old,) = rig.held(Transfer)
    if stored_there:
        rig.land(old)
    rig.hold = set()
    rig.crash()
    new = rig.transfers[-1]
    before = old.messages[0]
    assert (new.message.dedup, new.to, new.message.body) == (before.dedup, old.to, before.body)
    assert new.message.producer_seq == before.producer_seq == make_seq(1, 1)
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
    (transfer,) = rig.held(Transfer)
    assert len(transfer.entries) == 2
    rig.finish(transfer)
    (transfer,) = rig.held(Transfer)
    assert len(transfer.entries) == 2
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a", "b", "c", "d", "e"]


HELD_UP = [QueueFull("full"), TooLarge("too large")]
"""Why nothing is taken: now, and for good."""


@pytest.mark.parametrize("error", HELD_UP)
def test_however_many_can_not_leave_others_are_delivered(error: PushlaneError) -> None:
    bounds = Bounds(window_messages=100, transfers=5, page_messages=20, segment_messages=10)
    rig = Rig(bounds=bounds)
    rig.refusal = lambda _: error
    rig.publish(*[str(n) for n in range(150)], expires_at=rig.wall + 1_000)
    rig.wait(10_000)
    assert rig.stats.leaving == 150
    assert rig.shard.window.bodies.resident <= 5, "what stands in line does without its body"
    rig.publish("plain")
    consumer = rig.subscribe()
    assert consumer.bodies == ["plain"]
    consumer.ack(1)
    rig.refusal = None
    rig.wait(600_000)
    assert moved(rig) == [str(n) for n in range(150)]


def test_bodies_read_again_for_transfers_are_bounded() -> None:
    rig = Rig(bounds=Bounds(transfers=2, window_messages=4))
    rig.refusing = True
    rejected(rig, *"abcdefgh")
    rig.crash()
    assert rig.shard.window.bodies.resident <= 4
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
    assert (rig.stats.leaving, rig.shard.window.bodies.resident) == (3, 0)


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


# Lines


def test_what_is_refused_stops_those_behind_it() -> None:
    rig = Rig()
    rig.refusal = lambda message: QueueFull("full") if message.body == b"c" else None
    rejected(rig, *"abcde")
    assert moved(rig) == ["a", "b"]
    rig.refusal = None
    rig.wait(1_000)
    assert moved(rig) == list("abcde")


def test_queues_do_not_wait_for_each_other() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    seqs = rig.publish(*"abcd").seqs
    rig.shard.redrive(LANE, dict(zip(seqs, ["one", "two", "one", "two"], strict=True)), rig.now)
    rig.run()
    one, two = rig.held(Transfer)
    assert [[entry.seq for entry in each.entries] for each in (one, two)] == [
        [seqs[0], seqs[2]],
        [seqs[1], seqs[3]],
    ]
    rig.finish(two)
    assert moved(rig) == ["b", "d"]


def test_lines_take_turns() -> None:
    rig = Rig(bounds=Bounds(transfers=2))
    rig.hold = {Transfer}
    seqs = rig.publish(*"abcdxy").seqs
    rig.shard.redrive(LANE, {**dict.fromkeys(seqs[:4], "one"), seqs[5]: "two"}, rig.now)
    rig.run()
    rig.finish(*rig.held(Transfer))
    assert [transfer.to for transfer in rig.held(Transfer)] == ["two", "one"]


def test_a_queue_that_takes_nothing_costs_one_try_after_each_backoff() -> None:
    rig = Rig(bounds=Bounds(transfer_retry_ms=1_000, transfer_retry_max_ms=30_000))
    tries: list[tuple[int, bytes]] = []

    def full(message: Message) -> PushlaneError:
        tries.append((rig.now, message.body))
        return QueueFull("full")

    rig.refusal = full
    rejected(rig, *[f"{n}" for n in range(50)])
    tries.clear()
    rig.wait(600_000)
    assert [at for at, _ in tries[:6]] == [1_000, 3_000, 7_000, 15_000, 31_000, 61_000]
    assert {body for _, body in tries} == {b"0"}
    assert len(tries) <= 25
    assert (rig.stats.leaving, rig.stats.stuck) == (50, 50)
    rig.refusal = None
    rig.wait(30_000)
    assert len(moved(rig)) == 50
    assert rig.stats.stuck == 0


def test_explain_says_who_takes_nothing_and_when_it_is_tried_again() -> None:
    rig = Rig()
    rig.refusing = True
    (seq,) = rejected(rig, "a")
    found = rig.explain(seq)
    assert (found.state, found.why) == ("leaving", "it waits for q.dead: full")
    assert found.until == rig.wall + 1_000


def test_a_new_owner_sends_them_in_the_same_order() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=2, segment_messages=1))
    rig.refusing = True
    seqs = rig.publish(*"abcd").seqs
    rig.shard.redrive(LANE, {seqs[3]: "one"}, rig.now)
    rig.shard.redrive(LANE, {seqs[0]: "one", seqs[2]: "one"}, rig.now)
    rig.run()
    rig.refusing = False
    rig.crash()
    assert moved(rig) == ["d", "a", "c"]


# Refused for good


def gone(_: Message) -> PushlaneError:
    return NotFound("there is no queue one")


def redrive(rig: Rig, *seqs: int) -> None:
    assert rig.shard.redrive(LANE, dict.fromkeys(seqs, "one"), rig.now) == len(seqs)
    rig.run()


def test_a_redriven_message_that_is_refused_comes_back_with_the_reason() -> None:
    rig = Rig()
    rig.refusal = gone
    seqs = rig.publish(*"abc").seqs
    redrive(rig, *seqs)
    assert (rig.stats.leaving, rig.stats.ready) == (0, 3)
    assert rig.explain(seqs[0]).error == "one refused it: there is no queue one"
    rig.crash()
    assert rig.subscribe().bodies == ["a", "b", "c"]
    assert rig.explain(seqs[1]).error == "one refused it: there is no queue one"


def test_what_came_back_can_be_sent_elsewhere_or_purged() -> None:
    rig = Rig()
    rig.refusal = gone
    seqs = rig.publish(*"ab").seqs
    redrive(rig, *seqs)
    rig.refusal = None
    redrive(rig, seqs[0])
    rig.purge()
    assert (moved(rig), rig.stats.stored, rig.stats.purged) == (["a"], 0, 1)


def test_those_behind_go_when_the_refusal_is_durable() -> None:
    rig = Rig()
    rig.refusal = lambda message: TooLarge("too large") if message.body == b"b" else None
    seqs = rig.publish(*"abc").seqs
    rig.hold = {Transfer}
    redrive(rig, *seqs)
    rig.hold = {Settle}
    rig.finish(*rig.held(Transfer))
    assert moved(rig) == ["a"]
    assert rig.state(seqs[1]) == "retrying"
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a", "c"]
    assert rig.state(seqs[1]) == "ready"


def test_a_crash_before_the_refusal_is_durable_asks_again() -> None:
    rig = Rig()
    rig.refusal = gone
    rig.hold = {Transfer}
    (seq,) = rig.publish("a").seqs
    redrive(rig, seq)
    rig.hold = {Settle}
    rig.finish(*rig.held(Transfer))
    rig.refusal = None
    rig.hold = set()
    rig.crash()
    assert moved(rig) == ["a"]
    assert rig.stats.stored == 0


def test_it_comes_back_as_it_was() -> None:
    rig = Rig(cached=True)
    rig.refusal = gone
    (seq,) = rig.publish("a").seqs
    consumer = rig.subscribe(1)
    fence, stale = rig.entry(seq).fence, dict(rig.cache)
    consumer.credit(0)
    consumer.nack(1, delay_ms=0)
    rig.hold = {Transfer}
    redrive(rig, seq)
    rig.crash()
    rig.finish(*rig.held(Transfer))
    assert (rig.entry(seq).attempts, rig.entry(seq).fence) == (1, fence)
    rig.cache = stale
    rig.crash()
    assert rig.state(seq) == "ready", "a lease of before it left is over"


def test_it_comes_back_to_its_place_in_the_backlog() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    rig.refusal = gone
    seqs = rig.publish("a", "b", "c", "d", key="k").seqs
    redrive(rig, seqs[2])
    assert seqs[2] not in rig.shard.window.lanes[LANE].entries
    consumer = rig.subscribe(1)
    for n in range(1, 5):
        consumer.ack(n)
    assert consumer.bodies == ["a", "b", "c", "d"]


def test_it_waits_for_its_key() -> None:
    rig = Rig()
    rig.refusal = gone
    seqs = rig.publish(*"abcd", key="k").seqs
    rig.hold = {Transfer}
    redrive(rig, seqs[1], seqs[2])
    consumer = rig.subscribe(1)
    consumer.ack(1)
    rig.hold = set()
    rig.finish()
    assert rig.state(seqs[1]) == "blocked"
    consumer.ack(2)
    consumer.ack(3)
    consumer.ack(4)
    assert consumer.bodies == ["a", "d", "b", "c"], "what was out meanwhile comes first"


def test_it_comes_back_to_those_that_were_passed_over() -> None:
    rig = Rig(bounds=Bounds(key_positions=1))
    rig.refusal = gone
    seqs = rig.publish(*"abcde", key="k").seqs
    redrive(rig, seqs[3])
    assert seqs[3] not in rig.shard.window.lanes[LANE].entries
    consumer = rig.subscribe(1)
    for n in range(1, 6):
        consumer.ack(n)
    assert consumer.bodies == list("abcde")


def test_it_comes_back_when_its_key_has_no_room() -> None:
    rig = Rig(bounds=Bounds(key_positions=1))
    rig.refusal = gone
    seqs = rig.publish("a", "b", key="k").seqs
    rig.hold = {Transfer}
    redrive(rig, seqs[1])
    rig.publish("c", key="k")
    rig.hold = set()
    rig.finish()
    consumer = rig.subscribe(1)
    for n in range(1, 4):
        consumer.ack(n)
    assert consumer.bodies == ["a", "b", "c"]


def test_it_comes_back_while_the_next_of_its_key_is_sought() -> None:
    rig = Rig(bounds=Bounds(key_positions=1))
    rig.refusal = gone
    seqs = rig.publish(*"abcd", key="k").seqs
    rig.hold = {Transfer, Page}
    redrive(rig, seqs[1])
    consumer = rig.subscribe(1)
    consumer.ack(1)
    rig.finish(*rig.held(Transfer))
    rig.hold = set()
    rig.finish()
    for n in range(2, 5):
        consumer.ack(n)
    assert consumer.bodies == list("abcd")


def test_it_comes_before_those_that_are_kept_also_at_their_bound() -> None:
    rig = Rig(bounds=Bounds(key_positions=2))
    rig.refusal = gone
    seqs = rig.publish(*"abc", key="k").seqs
    rig.hold = {Transfer}
    redrive(rig, seqs[1])
    rig.publish("d", key="k")
    rig.hold = set()
    rig.finish()
    consumer = rig.subscribe(1)
    for n in range(1, 5):
        consumer.ack(n)
    assert consumer.bodies == list("abcd")


def test_all_of_a_key_come_back_in_order() -> None:
    rig = Rig(bounds=Bounds(transfers=2))
    rig.refusal = gone
    redrive(rig, *rig.publish(*"abcde", key="k").seqs)
    consumer = rig.subscribe(1)
    for n in range(1, 6):
        consumer.ack(n)
    assert consumer.bodies == list("abcde")


def test_a_queue_that_is_full_for_too_long_sends_redriven_messages_back() -> None:
    rig = Rig(bounds=Bounds(redrive_wait_ms=60_000))
    rig.refusing = True
    seqs = rig.publish(*"abc").seqs
    redrive(rig, *seqs)
    rig.wait(59_000)
    assert rig.stats.leaving == 3
    rig.wait(40_000)
    assert (rig.stats.leaving, rig.stats.ready) == (0, 3)
    assert rig.explain(seqs[2]).error is not None


def test_what_may_be_stored_there_does_not_come_back() -> None:
    rig = Rig(bounds=Bounds(redrive_wait_ms=60_000))
    rig.refusal = lambda _: Unavailable("who knows")
    redrive(rig, *rig.publish(*"abc").seqs)
    rig.wait(3_600_000)
    assert (rig.stats.leaving, rig.stats.stuck) == (3, 3)
    rig.refusal = None
    rig.wait(30_000)
    assert moved(rig) == ["a", "b", "c"]


# Dead letters that no queue takes


def picky(message: Message) -> PushlaneError | None:
    return TooLarge("over 10 bytes") if len(message.body) > 10 else None


LARGE = "x" * 11


def test_a_dead_letter_that_is_refused_is_parked_and_holds_up_nobody() -> None:
    rig = Rig()
    rig.refusal = picky
    seqs = rejected(rig, "a", LARGE, "b")
    assert moved(rig) == ["a", "b"]
    assert (rig.stats.leaving, rig.stats.stuck) == (1, 1)
    found = rig.explain(seqs[1])
    assert found.why == "it can't leave: q.dead refuses it: over 10 bytes"
    assert found.until == rig.wall + rig.bounds.parked_ms
    assert found.error == "bad", "that is what its consumer said"


def elsewhere(_: Message) -> PushlaneError:
    return Unsent("queue one is in use by another server")


def test_a_redriven_message_that_could_not_be_sent_at_all_comes_back_too() -> None:
    rig = Rig(bounds=Bounds(redrive_wait_ms=60_000))
    rig.refusal = elsewhere
    seqs = rig.publish(*"ab").seqs
    redrive(rig, *seqs)
    rig.wait(59_000)
    assert (rig.stats.leaving, rig.stats.ready) == (2, 0)
    rig.wait(60_000)
    assert (rig.stats.leaving, rig.stats.ready) == (0, 2)
    assert "in use by another server" in (rig.explain(seqs[0]).error or "")


@pytest.mark.parametrize("crash", [False, True])
def test_but_not_one_that_may_be_stored_there_since_an_earlier_try(crash: bool) -> None:
    rig = Rig(bounds=Bounds(redrive_wait_ms=60_000))
    rig.refusal = elsewhere if crash else lambda _: Unavailable("no answer")
    redrive(rig, *rig.publish("a").seqs)
    if crash:  # nobody knows what the old owner's tries came to
        rig.crash()
    rig.refusal = elsewhere
    rig.wait(600_000)
    assert (rig.stats.leaving, rig.stats.ready) == (1, 0)
    rig.refusal = None
    rig.wait(30_000)
    assert (moved(rig), rig.stats.stored) == (["a"], 0)


def test_it_is_offered_again_later() -> None:
    rig = Rig(bounds=Bounds(parked_ms=300_000))
    rig.refusal = picky
    rejected(rig, LARGE)
    rig.wait(299_999)
    rig.refusal = None
    assert moved(rig) == []
    rig.wait(1)
    assert moved(rig) == [LARGE]
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_another_one_does_not_put_it_off() -> None:
    rig = Rig(bounds=Bounds(parked_ms=300_000))
    rig.refusal = picky
    rejected(rig, LARGE)
    rig.wait(200_000)
    rejected(rig, LARGE + "x")
    rig.refusal = None
    rig.wait(100_000)
    assert moved(rig) == [LARGE, LARGE + "x"]


def test_it_goes_where_dead_letters_go_by_then() -> None:
    rig = Rig()
    rig.refusal = picky
    rejected(rig, LARGE)
    rig.refusal = None
    rig.dead_letter = "grave"
    rig.configure()
    assert [arrived.to for arrived in rig.transfers] == ["grave"]


def test_it_ends_where_dead_letters_go_nowhere() -> None:
    rig = Rig()
    rig.refusal = picky
    (seq,) = rejected(rig, LARGE)
    rig.dead_letter = None
    rig.configure()
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)
    assert rig.explain(seq).why == "it went to the dead letters: rejected"


def test_a_new_owner_offers_it_at_once() -> None:
    rig = Rig()
    rig.refusal = picky
    (seq,) = rejected(rig, LARGE)
    rig.crash()
    assert (rig.state(seq), rig.stats.stuck) == ("leaving", 1)
    rig.refusal = None
    rig.crash()
    assert moved(rig) == [LARGE]


def test_it_is_not_offered_before_its_refusal_is_durable() -> None:
    rig = Rig(bounds=Bounds(parked_ms=300_000))
    rig.refusal = picky
    rejected(rig, LARGE)
    rig.wait(200_000)
    rig.hold = {Settle}
    consumer = rig.subscribe()
    rig.publish(LARGE + "x")
    consumer.nack(1, dead=True)
    rig.finish(*rig.held(Settle))
    rig.refusal = None
    rig.wait(100_000)
    rig.hold = set()
    rig.finish()
    assert moved(rig) == [LARGE]
    rig.wait(300_000)
    assert moved(rig) == [LARGE, LARGE + "x"]


# Numbers


class Pair:
    """A queue, and the one to which its dead letters go."""

    def __init__(self, bounds: Bounds | None = None, **config: Any) -> None:
        self.source = Rig(bounds=bounds)
        self.target = Rig(QueueConfig(**config), bounds, dead_letter=None)
        self.source.refusal = self.publish

    def publish(self, message: Message) -> PushlaneError | None:
        ticket = self.target.send([message])
        assert ticket in self.target.published
        return ticket.failed.get(0)

    def wait(self, ms: int) -> None:
        self.source.wait(ms)
        self.target.wait(ms)

    @property
    def arrived(self) -> list[str]:
        segments = self.target.segments()
        return [message.body.decode() for segment in segments for message in segment.messages]


def test_numbers_grow_over_owners() -> None:
    rig = Rig()
    rejected(rig, "a", "b")
    rig.crash()
    rejected(rig, "c")
    numbers = [arrived.message.producer_seq for arrived in rig.transfers]
    assert numbers == [make_seq(1, 1), make_seq(1, 2), make_seq(2, 1)]


def test_what_was_stored_there_is_not_stored_again() -> None:
    pair = Pair()
    pair.source.hold = {Transfer}
    rejected(pair.source, *"abc")
    for _ in range(3):
        pair.source.land(*pair.source.held(Transfer))
        pair.target.crash()
        pair.source.crash()
    pair.source.hold = set()
    pair.source.finish()
    assert pair.arrived == list("abc")
    assert (pair.source.stats.stored, pair.source.stats.dead) == (0, 3)


def test_many_transfers_need_no_dedup_ids() -> None:
    pair = Pair(Bounds(dedup_ids=1))
    rejected(pair.source, *[f"{n}" for n in range(100)])
    assert len(pair.arrived) == 100
    assert not pair.target.shard.dedup.ids
    assert len(pair.target.shard.dedup.producers) == 1


def test_what_was_refused_gets_another_number() -> None:
    pair = Pair(max_message_bytes=5)
    rejected(pair.source, "large one", "a")
    pair.source.crash()
    rejected(pair.source, "b")
    assert pair.arrived == ["a", "b"]
    pair.target.configure(max_message_bytes=100)
    pair.source.crash()
    assert pair.arrived == ["a", "b", "large one"]
    assert pair.source.stats.stored == 0


def test_what_an_older_version_sent_off_goes_under_its_id() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    (bucket,) = rig.buckets()
    leaving = Leaving(seq, "rejected", "q.dead", 1, "bad", rig.wall)
    flush = Settlement(bucket.key, rig.epoch, rig.shard.log.n, [bucket.key], leaving=[leaving])
    rig.tables.settle(rig.key, [flush])
    rig.crash()
    (arrived,) = rig.transfers
    assert arrived.message.dedup == TRANSFER + make_id("q1", 0, LANE, seq)
    assert (arrived.message.producer, arrived.message.producer_seq) == (None, 0)
