"""The meter: what a batch adds, and that latencies land in their bins."""

from __future__ import annotations

import msgspec

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_dispatcher.core.shard import Moment, Shard
from pushlane_storage.message import MESSAGE_OVERHEAD, Message
from pushlane_storage.usage import bin_of
from tests.dispatcher.core.harness import Rig


def entries(*ages: int, now: int = 1_000) -> list[Entry]:
    lane = Lane(4, 1)
    return [
        Entry(seq, lane, Message(b"body", now - age), MESSAGE_OVERHEAD + 4, State.READY, now - age)
        for seq, age in enumerate(ages)
    ]


def test_bytes_and_latencies_of_a_flush() -> None:
    meter = Meter()
    messages = [Message(b"abc", at) for at in (900, 990, 995, 1_000, 1_000)]
    meter.stored(messages, 5 * (MESSAGE_OVERHEAD + 3), 1_000)
    assert meter.take() == {
        "bytes_in": 15,
        f"publish_ms.{bin_of(100)}": 1,
        f"publish_ms.{bin_of(10)}": 1,
        "publish_ms.5": 1,
        "publish_ms.0": 2,
    }
    assert meter.take() == {}


def test_the_wall_clock_is_ahead() -> None:
    meter = Meter(offset=50)
    meter.stored([Message(b"", 1_000)], MESSAGE_OVERHEAD, 1_000)
    assert meter.take() == {"bytes_in": 0, f"publish_ms.{bin_of(50)}": 1}
    assert meter.offset == 50


def test_only_first_deliveries_have_a_latency() -> None:
    meter = Meter()
    meter.delivered(entries(7, 7, 7), True, 1_000)
    meter.delivered(entries(500), False, 1_000)
    assert meter.take() == {"delivered": 4, "bytes_out": 16, "delivery_ms.7": 3}


def test_a_delayed_message_is_late_from_when_it_was_due() -> None:
    meter = Meter()
    [entry] = entries(900)
    entry.not_before = 998
    meter.delivered([entry], True, 1_000)
    assert meter.take()["delivery_ms.2"] == 1


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    meter = Meter()
    meter.acked(entries(-5), 1_000)
    assert meter.take() == {"ack_ms.0": 1}


# In a shard


def metered() -> tuple[Rig, Meter]:
    rig = Rig()
    meter = rig.shard.meter = Meter(rig.offset)
    rig.shard.consumers._meter = rig.shard.verdicts._meter = meter
    return rig, meter


def test_a_message_s_way() -> None:
    rig, meter = metered()
    consumer = rig.subscribe(explicit=True)
    rig.publish("hello", "you")
    rig.now += 5
    consumer.start(*consumer.numbers)
    rig.now += 3
    consumer.ack(*consumer.numbers)
    assert meter.take() == {
        "bytes_in": 8, "bytes_out": 8, "delivered": 2, "started": 2,
        "publish_ms.0": 2, "delivery_ms.0": 2, "ack_ms.3": 2,
    }  # fmt: skip


def test_what_came_back_is_retried() -> None:
    rig, meter = metered()
    consumer = rig.subscribe()
    rig.publish("x")
    consumer.nack(consumer.numbers[0], delay_ms=0)
    found = meter.take()
    assert (found["retried"], found["delivered"], found["started"]) == (1, 2, 2)
    assert found["delivery_ms.0"] == 1


def test_what_is_taken_is_delivered() -> None:
    rig, meter = metered()
    rig.subscribe(ack_none=True)
    rig.publish("x", "y")
    assert meter.take()["delivered"] == 2


def test_a_meter_follows_the_clock() -> None:
    rig = Rig()
    meter = Meter()
    setup = msgspec.structs.replace(rig.setup, meter=meter)
    shard = Shard(setup, Recovered(), Moment(0, 77))
    assert meter.offset == 77
    shard.tick(1, 99)
    assert meter.offset == 99
