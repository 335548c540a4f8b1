"""Cancelling a delayed message: wherever it stands, it ends once and for all."""

from heapq import heapify

import pytest

from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.core import delays
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Schedule, Settle, SettleTicket
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig

SMALL = Bounds(window_messages=2, segment_messages=1, horizon_ms=10_000)


def cancel(rig: Rig, seq: int, lane: int = LANE) -> SettleTicket:
    ticket = SettleTicket()
    message = rig.stored(lane, seq)
    rig.shard.cancel(lane, seq, message.not_before if message else 0, ticket, rig.now)
    rig.run()
    return ticket


def delayed(rig: Rig, body: str, ms: int = 1_000) -> int:
    (seq,) = rig.publish(body, not_before=rig.wall + ms).seqs
    return seq


def test_it_ends_when_that_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    seq = delayed(rig, "a")
    other = delayed(rig, "b")
    rig.hold = {Settle}
    ticket = cancel(rig, seq)
    assert (rig.state(seq), rig.done) == ("leaving", [])
    rig.hold = set()
    rig.finish()
    assert rig.done == [ticket]
    assert (rig.state(seq), rig.state(other)) == ("purged", "delayed")
    assert (rig.stats.delayed, rig.stats.purged, rig.stats.stored) == (1, 1, 1)
    rig.wait(2_000)
    assert consumer.bodies == ["b"]


def test_it_stays_cancelled_after_a_crash() -> None:
    rig = Rig()
    seq = delayed(rig, "a")
    delayed(rig, "b")
    cancel(rig, seq)
    rig.crash()
    consumer = rig.subscribe()
    assert rig.state(seq) == "purged"
    rig.wait(2_000)
    assert consumer.bodies == ["b"]


def test_a_cancel_that_was_not_written_did_not_happen() -> None:
    rig = Rig()
    seq = delayed(rig, "a")
    rig.hold = {Settle}
    cancel(rig, seq)
    rig.hold = set()
    rig.crash()
    assert rig.state(seq) == "delayed"


def test_far_ahead_in_the_schedule() -> None:
    rig = Rig(bounds=SMALL)
    seq = delayed(rig, "far", 1_000_000)
    other = delayed(rig, "other", 1_000_000)
    assert (rig.shard.window.delays.far, rig.stats.delayed) == (2, 2)
    cancel(rig, seq)
    assert (rig.shard.window.delays.far, rig.stats.delayed, rig.stats.stored) == (1, 1, 1)
    assert (rig.state(seq), rig.state(other)) == ("purged", "delayed")
    consumer = rig.subscribe()
    rig.wait(1_000_000)
    assert consumer.bodies == ["other"]


def test_while_the_schedule_is_being_read() -> None:
    rig = Rig(bounds=SMALL)
    seq = delayed(rig, "far", 20_000)
    rig.hold = {Schedule}
    rig.wait(15_000)
    assert rig.held(Schedule)
    cancel(rig, seq)
    rig.hold = set()
    rig.finish()
    consumer = rig.subscribe()
    rig.wait(20_000)
    assert (consumer.bodies, rig.shard.window.delays.far, rig.state(seq)) == ([], 0, "purged")


@pytest.mark.parametrize("ms", [5_000, 1_000_000])
def test_behind_the_window(ms: int) -> None:
    rig = Rig(bounds=SMALL)
    rig.publish("a", "b", "c")
    seq = delayed(rig, "late", ms)
    rig.publish("d")
    assert rig.state(seq) == "delayed"  # though nobody has looked at it yet
    cancel(rig, seq)
    assert (rig.state(seq), rig.shard.window.delays.far, rig.stats.stored) == ("purged", 0, 4)
    consumer = rig.subscribe()
    assert consumer.bodies == ["a", "b", "c", "d"]
    consumer.ack(1, 2, 3, 4)
    rig.wait(ms + 1)
    assert (len(consumer.bodies), rig.stats.stored) == (4, 0)


def test_only_what_is_delayed() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=60_000))
    ready, retried, leased = rig.publish("a", "b", "c").seqs
    consumer = rig.subscribe(3)
    consumer.nack(2)
    consumer.nack(1, delay_ms=0)
    for seq in (ready, retried, leased):
        with pytest.raises(Conflict, match="only a delayed"):
            cancel(rig, seq)
    assert rig.stats.stored == 3


def test_twice() -> None:
    rig = Rig()
    seq = delayed(rig, "a")
    rig.hold = {Settle}
    cancel(rig, seq)
    with pytest.raises(Conflict):
        cancel(rig, seq)
    rig.hold = set()
    rig.finish()
    with pytest.raises(NotFound, match="has ended"):
        cancel(rig, seq)


def test_behind_the_window_only_what_is_delayed() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=0), bounds=SMALL)
    rig.publish("a", "b")
    behind = rig.publish("c", "d").seqs
    for seq in behind:
        with pytest.raises(Conflict):
            cancel(rig, seq)


def test_behind_the_window_a_retry_is_no_delay() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish("a", "b")
    late = delayed(rig, "late", 1_000)
    rig.wait(1_000)
    consumer = rig.subscribe(3)
    assert rig.state(late) == "leased"
    consumer.nack(*consumer.sub.held, delay_ms=60_000)
    consumer.end()
    rig.hold = {Page}
    rig.crash()
    with pytest.raises(Conflict):
        rig.shard.cancel(LANE, late, rig.wall + 10_000, SettleTicket(), rig.now)


def test_what_is_not_there() -> None:
    rig = Rig()
    seq = delayed(rig, "a")
    for lane, strange in ((7, seq), (LANE, seq + 1)):
        with pytest.raises(NotFound):
            cancel(rig, strange, lane)


def test_many_cancels_do_not_sort_what_is_left_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    consumer = rig.subscribe(1_000)
    dues = {f"{number:03}": rig.wall + 1_000 + number for number in range(1_000)}
    messages = [rig.message(body, not_before=due) for body, due in reversed(dues.items())]
    seqs = dict(zip(reversed(dues), rig.send(messages).seqs, strict=True))
    sorted_again: list[int] = []

    def counted(heap: list[delays.Item]) -> None:
        sorted_again.append(len(heap))
        heapify(heap)

    monkeypatch.setattr(delays, "heapify", counted)
    kept = [body for body in dues if body.endswith("0")]
    ended = [body for body in dues if body not in kept]
    for body in ended[:400]:
        rig.shard.cancel(LANE, seqs[body], dues[body], SettleTicket(), rig.now)
    rig.run()
    assert (rig.stats.delayed, sorted_again) == (600, [])
    for body in ended[400:]:
        rig.shard.cancel(LANE, seqs[body], dues[body], SettleTicket(), rig.now)
    rig.run()
    assert rig.stats.delayed == 100
    assert 1 <= len(sorted_again) <= 4, "each time that half of them are gone"
    rig.wait(2_000)
    assert consumer.bodies == kept
