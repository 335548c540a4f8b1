"""The fold of the settlement log, against a model that keeps one word per message."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.bucket import BucketKey
from pushlane_storage.ranges import Range
from pushlane_storage.settlement import (
    BucketState,
    Gone,
    Leaving,
    Purge,
    Settlement,
    Void,
    fold,
)

KEY = BucketKey(4, 1, 0)
TOP = 20

seqs = st.integers(0, TOP)
spans = st.tuples(seqs, seqs).map(lambda pair: (min(pair), max(pair)))
causes = st.sampled_from(["expired", "dropped", "purged"])
gones = st.builds(lambda cause, span: Gone(cause, *span), causes, spans)
voids = st.builds(Void, seqs, st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))
leavings = st.builds(
    Leaving, seqs, causes, st.just("q.dead"), st.integers(0, 3), st.none(), st.just(0)
)
contents = st.fixed_dictionaries(
    {
        "acked": st.lists(spans, max_size=2),
        "gone": st.lists(gones, max_size=2),
        "voids": st.lists(voids, max_size=3),
        "leaving": st.lists(leavings, max_size=2),
    }
)
logs = st.lists(contents, max_size=8)
Content = dict[str, Any]


def row(owner: int, n: int, **content: Any) -> Settlement:
    return Settlement(KEY, owner, n, [KEY], **content)


def rows_of(log: list[Content], change_at: int = 4) -> list[Settlement]:
    """The log as rows; a new owner takes over before row `change_at`."""
    return [row(1 + n // change_at, n % change_at, **content) for n, content in enumerate(log)]


class Model:
    """The same fold, message by message."""

    def __init__(self) -> None:
        self.ends: dict[int, str] = {}
        self.voids: dict[int, Void] = {}
        self.leaving: dict[int, Leaving] = {}

    def apply(self, row: Settlement) -> None:
        for void in row.voids:
            if void.seq not in self.ends:
                self.voids[void.seq] = void
                self.leaving.pop(void.seq, None)
        for leaving in row.leaving:
            if leaving.seq not in self.ends:
                self.leaving[leaving.seq] = leaving
                self.voids.pop(leaving.seq, None)
        for low, high in row.acked:
            self.end("acked", low, high)
        for gone in row.gone:
            self.end(gone.cause, gone.low, gone.high)

    def end(self, cause: str, low: int, high: int) -> None:
        for seq in range(low, high + 1):
            self.ends.setdefault(seq, cause)
            self.voids.pop(seq, None)
            self.leaving.pop(seq, None)


def assert_same(state: BucketState, model: Model) -> None:
    ends = {seq: state.cause_of(seq) for seq in range(TOP + 1)}
    assert {seq: cause for seq, cause in ends.items() if cause is not None} == model.ends
    assert {seq for seq in range(TOP + 1) if seq in state.settled} == set(model.ends)
    assert state.settled.count == len(model.ends)
    assert state.voids == model.voids
    assert state.leaving == model.leaving


def summary(state: BucketState) -> object:
    """Everything that a state says; a cause without messages says nothing."""
    gone = {cause: list(ranges) for cause, ranges in state.gone.items() if ranges.count}
    return list(state.acked), list(state.settled), gone, state.voids, state.leaving


@given(logs)
def test_the_fold_is_that_of_the_model(log: list[Content]) -> None:
    model = Model()
    for one in rows_of(log):
        model.apply(one)
    assert_same(fold(rows_of(log)), model)


@given(logs)
def test_no_message_ends_twice(log: list[Content]) -> None:
    state = fold(rows_of(log))
    counts = [state.acked.count, *(ranges.count for ranges in state.gone.values())]
    assert sum(counts) == state.settled.count


@given(logs, st.randoms(use_true_random=False))
def test_rows_may_be_read_in_any_order(log: list[Content], random: Any) -> None:
    rows = rows_of(log)
    random.shuffle(rows)
    assert summary(fold(rows)) == summary(fold(rows_of(log)))


@given(logs, st.sets(st.integers(0, 8)))
def test_checkpoints_anywhere_change_nothing(log: list[Content], places: set[int]) -> None:
    """A checkpoint stands in a row of its own, or in one that says something, too."""
    state = BucketState()
    rows: list[Settlement] = []
    for index, content in enumerate(log):
        checkpoint = state.checkpoint() if index in places else None
        if index % 2 and checkpoint is not None:
            rows.append(row(1, len(rows), checkpoint=checkpoint))
            checkpoint = None
        rows.append(row(1, len(rows), checkpoint=checkpoint, **content))
        state.apply(rows[-1])
    expected = summary(fold(rows_of(log)))
    assert summary(fold(rows)) == expected
    assert summary(state) == expected
    starts = [index for index, one in enumerate(rows) if one.checkpoint is not None]
    assert summary(fold(rows[starts[-1] if starts else 0 :])) == expected


@given(logs, st.integers(0, 8), st.integers(-5, TOP + 5), st.sets(st.integers(-5, TOP + 5)), spans)
def test_a_purge_ends_what_it_does_not_spare(
    log: list[Content], at: int, upto: int, spared: set[int], bucket: Range
) -> None:
    state, model = BucketState(), Model()
    for index, one in enumerate(rows_of(log)):
        if index == at:
            state.purge(Purge(4, upto, sorted(spared)), *bucket)
            for seq in range(bucket[0], min(bucket[1], upto) + 1):
                if seq not in spared:
                    model.end("purged", seq, seq)
        state.apply(one)
        model.apply(one)
    assert_same(state, model)


def test_an_ack_after_a_purge_of_a_spared_message() -> None:
    state = BucketState()
    state.purge(Purge(4, 100, [3]), 0, 9)
    assert state.cause_of(3) is None
    state.apply(row(1, 0, acked=[(3, 3)]))
    assert (state.cause_of(3), state.cause_of(4), state.cause_of(10)) == ("acked", "purged", None)
    assert state.settled.count == 10


def test_the_first_word_stands() -> None:
    state = fold([row(1, 0, acked=[(0, 4)]), row(1, 1, gone=[Gone("expired", 3, 6)])])
    assert [state.cause_of(seq) for seq in (4, 5)] == ["acked", "expired"]
    state.apply(row(1, 2, voids=[Void(4, 1, 1, 1)], leaving=[Leaving(5, "x", "y", 1, None, 0)]))
    assert not state.voids
    assert not state.leaving


def test_what_leaves_is_not_void_any_more_until_it_is_gone() -> None:
    state = fold([row(1, 0, voids=[Void(1, 7, 1, 1)])])
    state.apply(row(1, 1, leaving=[Leaving(1, "max_attempts", "q.dead", 1, None, 5)]))
    assert (list(state.voids), list(state.leaving)) == ([], [1])
    state.apply(row(1, 2, gone=[Gone("max_attempts", 1, 1)]))
    assert (list(state.leaving), state.cause_of(1)) == ([], "max_attempts")


def test_a_long_run_forgets_its_notes() -> None:
    notes = [Void(seq, 1, 1, 1) for seq in (1, 500, 5_000)]
    state = fold([row(1, 0, voids=notes), row(1, 1, acked=[(0, 999)])])
    assert list(state.voids) == [5_000]


def test_a_void_says_that_what_was_leaving_came_back() -> None:
    left = row(1, 0, leaving=[Leaving(3, "redriven", "other", 1, None, 0, 7, 2, 5)])
    back = row(1, 1, voids=[Void(3, 5, 1, 2, error="other refused it")])
    state = fold([left, back])
    assert state.leaving == {}
    assert state.voids == {3: back.voids[0]}
    assert fold([left, back, row(1, 2, leaving=left.leaving)]).voids == {}


def test_what_older_versions_wrote_of_those_that_leave_is_read() -> None:
    old = msgspec.msgpack.encode((3, "rejected", "q.dead", 1, "bad", 99))
    found = msgspec.msgpack.decode(old, type=Leaving)
    assert (found.number, found.deliveries, found.fence) == (0, 0, 0)
