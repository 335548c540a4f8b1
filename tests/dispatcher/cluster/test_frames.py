"""What nodes say to each other: version 1, byte for byte.

Nodes of two versions run side by side, so what is written down here never changes; a later version
may only add to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import CODES, error_for
from pushlane_dispatcher.browsing.question import GetStats
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import Fault, decode_asked, decode_told, encode
from pushlane_dispatcher.cluster.status import Report
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.core.places import Claim
from pushlane_storage.message import Message

VECTORS = Path(__file__).with_name("frames.json")
MESSAGE = Message(b'{"a":1}', 1_700_000_000_000, key="k", producer="p", producer_seq=7)
RECEIPTS = [("p~0", 1, 3)]
QUESTION = msgspec.Raw(encode(GetStats()))

SAMPLES: list[frames.Frame] = [
    frames.Pair("0123456789abcdef"),
    frames.Open(1, "default", "orders", "0f" * 16, 3, 0, (Claim("key:1", 50),)),
    frames.Publish(1, 2, [MESSAGE], [4], 1_700_000_000_100),
    frames.Attach(
        1, 3, 4, "s-1", 64, None, True, False, True, "client", (Claim("key:1", 50),), "p~0",
        RECEIPTS, 1
    ),
    frames.Resume(3, 5, RECEIPTS),
    frames.Detach(3, 30_000),
    frames.Unsubscribe(3),
    frames.End(3),
    frames.SetCredit(3, 6, 10),
    frames.Settle(1, 7, "p~0", 2, RECEIPTS, False, "nack", 0, 100, "broken", True),
    frames.Ask(1, 8, QUESTION),
    frames.Look(9, "0f" * 16, 3, QUESTION),
    frames.Tell(10),
    frames.CutOff(3, 30_000),
    frames.Yield(11, "s-1", 2),
    frames.HandOver(12, "0f" * 16, 3, 7, b"packed", True),
    frames.Leave(1),
    frames.Paired(),
    frames.Opened(1),
    frames.Moved(1, "ab" * 16, 12),
    frames.Refused(1, Fault("throttled", "later", 1_000, "open_shards", True)),
    frames.Gone(1, "unavailable", "it has stopped", 12),
    frames.Published(2, [1 << 40], {0: (4, 5), 1: None}, {2: Fault("too_large", "no")}),
    frames.Failed(2, Fault("unavailable", "again", 100)),
    frames.Attached(4, "p~0", 1, 30_000, RECEIPTS),
    frames.Resumed(5, 2, RECEIPTS),
    frames.Settled(7, RECEIPTS, RECEIPTS),
    frames.Answer(8, msgspec.Raw(encode([1, 2]))),
    frames.Deliver(
        3, 1, False, 2, 0, [frames.Pushed(4, 1 << 40, 1, True, 1, 0, 1 << 20, 30_000, [MESSAGE])]
    ),
    frames.Lost(3, 1, RECEIPTS, 0, 0),
    frames.Hungry(3, True, 0, 1),
    frames.Holds(3, 1, 0),
    frames.Credited(6),
    frames.Ended(3, "not_found", "the queue was deleted", RECEIPTS),
    frames.Yielded(11, b"record"),
    frames.Taken(12),
]  # fmt: skip


def decode(data: bytes) -> frames.Frame:
    tag = msgspec.msgpack.decode(data)[0]
    found: frames.Frame = decode_told(data) if tag == 2 or tag >= 40 else decode_asked(data)
    return found


def test_every_frame_has_a_sample_and_a_tag_of_its_own() -> None:
    every = {*frames.Asked.__args__, *frames.Told.__args__}
    assert {type(sample) for sample in SAMPLES} == every
    assert len({frame.__struct_config__.tag for frame in every}) == len(every)


def test_frames_are_what_they_always_were() -> None:
    golden: dict[str, str] = msgspec.json.decode(VECTORS.read_bytes())
    assert {type(sample).__name__: encode(sample).hex() for sample in SAMPLES} == golden


def test_a_publish_need_not_say_what_time_it_is() -> None:
    fields = msgspec.msgpack.decode(encode(frames.Publish(1, 2, [MESSAGE], [4], 5)))
    assert decode(encode(fields[:-1])) == frames.Publish(1, 2, [MESSAGE], [4])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_they_come_back_as_they_were(sample: frames.Frame) -> None:
    assert encode(decode(encode(sample))) == encode(sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_a_later_version_adds_is_passed_over(sample: frames.Frame) -> None:
    longer = encode([*msgspec.msgpack.decode(encode(sample)), "new"])
    assert encode(decode(longer)) == encode(sample)


def test_reports_of_other_versions_are_understood() -> None:
    old, new = encode([7, 1.5, 2.5, 3, 2, 1, 4, 5]), encode([*range(11), "new"])
    decode_report = msgspec.msgpack.Decoder(Report).decode
    assert decode_report(old) == Report(7, 1.5, 2.5, 3, 2, 1, 4, 5, None, None, None)
    assert decode_report(new) == Report(*range(11))


@pytest.mark.parametrize("code", CODES)
def test_errors_travel_with_all_that_they_say(code: str) -> None:
    error = error_for(code, "text", 100)
    error.limit = "batch"
    found = Fault.of(error).error()
    assert (type(found), found.code, found.message) == (type(error), code, "text")
    assert (found.retry_ms, found.limit) == (100, "batch")


def test_what_was_certainly_not_done_stays_so() -> None:
    assert isinstance(Fault.of(Unsent("not now", 5)).error(), Unsent)


@given(st.integers(0, 1 << 60), st.integers(1, 50))
def test_seqs_in_a_row_travel_as_one(first: int, count: int) -> None:
    seqs = list(range(first, first + count))
    packed = frames.packed(PublishTicket(seqs, None, None))
    assert len(packed) == 1
    assert frames.unpacked(packed, count) == seqs


@pytest.mark.parametrize(
    "ticket",
    [
        PublishTicket([5, -1, 7], None, None, failed={1: error_for("too_large", "no")}),
        PublishTicket([5, 9, 7], None, None, duplicates={1: (4, 1)}),
        PublishTicket([5, 6, 7], [4, 5, 4], None),
        PublishTicket([5, 6, 8], None, None),
    ],
)
def test_others_travel_one_by_one(ticket: PublishTicket) -> None:
    assert frames.unpacked(frames.packed(ticket), 3) == ticket.seqs


def main() -> None:
    """Write the vectors, for frames that are new: run this file as a module."""
    found: dict[str, Any] = {type(sample).__name__: encode(sample).hex() for sample in SAMPLES}
    VECTORS.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


if __name__ == "__main__":
    main()
