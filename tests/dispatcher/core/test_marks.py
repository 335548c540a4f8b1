"""What a bucket's marks are about."""

from pushlane_dispatcher.core.marks import Marks, summarize
from pushlane_storage.bucket import MarkSummary
from pushlane_storage.message import TRANSFER
from pushlane_storage.segment import DedupMark

MARKS = [
    DedupMark(1, 0, dedup="a"),
    DedupMark(2, 0, dedup=TRANSFER + "x", producer="p", producer_seq=9),
    DedupMark(3, 0, producer="p", producer_seq=4, count=3),
    DedupMark(6, 0, producer="q", producer_seq=1),
]


def test_what_is_counted() -> None:
    marks = Marks(2)
    marks.add(MARKS[:2])
    marks.add(MARKS[2:])
    assert marks.summary() == MarkSummary(1, 1, {"p": (4, 9), "q": (1, 1)})


def test_too_many_producers_are_not_listed() -> None:
    marks = Marks(1)
    marks.add(MARKS)
    marks.add(MARKS)
    assert marks.summary() == MarkSummary(2, 2, None)


def test_it_goes_on_from_a_summary() -> None:
    summary = summarize(MARKS)
    marks = Marks(2, summary)
    marks.add([DedupMark(7, 0, producer="q", producer_seq=2)])
    assert marks.summary().producers == {"p": (4, 9), "q": (2, 2)}
    assert summary.producers == {"p": (4, 9), "q": (1, 1)}
    assert Marks(1, summary).summary().producers is None
    assert Marks(1, MarkSummary(producers=None)).summary().producers is None
