"""The tally: packed as counters, and what a bucket's state amounts to."""

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.settlement import BucketState, Purge
from pushlane_storage.tally import (
    Tally,
    add,
    difference,
    key_of,
    pack_tally,
    totals_of,
    unpack_tally,
    version_of,
)
from pushlane_storage.usage import Usage, UsageKey


def test_a_tally_survives_packing() -> None:
    tally = Tally(
        29_000_000,
        {"published": 7, "dead.max_attempts": 2},
        {"published": 5},
        frozenset([BucketKey(4, 3, 1_700_000_000_000), BucketKey(9, 1, 0)]),
    )
    row = Usage(key_of("t", "q", ShardKey("id", 3)), pack_tally(tally))
    assert row.key == UsageKey("t", "q", 0, "id/3")
    assert unpack_tally(row) == tally


def test_there_may_be_none() -> None:
    assert unpack_tally(None) is None
    assert unpack_tally(Usage(key_of("t", "q", ShardKey("id", 0)), {})) is None


def test_totals_of_a_bucket() -> None:
    state = BucketState()
    assert totals_of(0, state) == {}
    state._end(state.acked, 10, 12)
    state.end("dead:max_attempts", 13, 13)
    state.end("redriven", 14, 15)
    state.purge(Purge(4, 19, [17]), 10, 19)
    assert totals_of(10, state) == {
        "published": 10, "acked": 3, "dead.max_attempts": 1, "redriven": 2, "purged": 3,
    }  # fmt: skip


def test_a_difference_is_what_is_missing() -> None:
    whole, part = {"published": 5, "acked": 2, "purged": 1}, {"published": 5, "acked": 3, "x": 1}
    missing = difference(whole, part)
    assert missing == {"acked": -1, "purged": 1, "x": -1}
    add(part, missing)
    assert {name: value for name, value in part.items() if value} == whole


def test_versions_grow_with_the_owner_and_its_rows() -> None:
    assert version_of(1, 1) < version_of(1, 2) < version_of(2, 0) < version_of(1 << 23, 0) < 1 << 62
