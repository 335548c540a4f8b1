"""Snapshots on their way, and until their shards open."""

from __future__ import annotations

import pytest

from pushlane_dispatcher.core.snapshot import HeldRun, Holder, Snapshot
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.handed import PIECE_BYTES, Handed, pack
from pushlane_storage.bucket import ShardKey

KEY = ShardKey("q", 0)
RUN = HeldRun(4, 1 << 41, 1, 10, 2 << 20, 1, 0, True, 30_000)


def holder(prefix: str, runs: int = 1) -> Holder:
    return Holder(prefix, "s", 1, 30_000, 0, None, False, [(1, 3)], [(500, 2)], [RUN] * runs)


def give(handed: Handed, snapshot: Snapshot, now: int = 1_000, key: ShardKey = KEY) -> int:
    """How many pieces it took."""
    pieces = list(pack(snapshot))
    for piece in pieces:
        handed.take(key, snapshot.epoch, piece, now, last=piece is pieces[-1])
    return len(pieces)


@pytest.mark.parametrize(("holders", "runs", "pieces"), [(0, 0, 1), (3, 2, 1), (40, 1_000, 4)])
def test_it_comes_out_as_it_went_in(holders: int, runs: int, pieces: int) -> None:
    snapshot = Snapshot(7, 0, [holder(f"p{n}", runs) for n in range(holders)])
    handed = Handed(Settings())
    assert give(handed, snapshot) == pieces
    found = handed.find(KEY, 1_000)
    assert found == Snapshot(7, 1_000, snapshot.holders), "its durations begin when it came"
    assert handed.find(KEY, 2_000) == found, "an opening may fail"
    assert handed.find(ShardKey("q", 1), 1_000) is None
    handed.drop(KEY)
    assert (handed.find(KEY, 1_000), handed._size) == (None, 0)


def test_no_piece_is_much_larger_than_others() -> None:
    snapshot = Snapshot(7, 0, [holder(f"p{n}", 1_000) for n in range(40)])
    assert max(map(len, pack(snapshot))) <= PIECE_BYTES + 10


def test_what_is_not_whole_is_nothing() -> None:
    handed = Handed(Settings())
    handed.take(KEY, 7, b"\x90", 0, last=False)
    assert handed.find(KEY, 0) is None
    handed.take(KEY, 7, b"\x90", 0, last=True)
    assert handed.find(KEY, 0) == Snapshot(7, 0, [])


def test_a_later_one_takes_its_place() -> None:
    handed = Handed(Settings())
    give(handed, Snapshot(7, 0, [holder("old")]))
    give(handed, Snapshot(9, 0, [holder("new")]), now=2_000)
    assert handed.find(KEY, 2_000) == Snapshot(9, 2_000, [holder("new")])
    assert len(handed) == 1


def test_what_nobody_wants_goes() -> None:
    handed = Handed(Settings(handed_ms=5_000))
    give(handed, Snapshot(7, 0, [holder("p")]))
    assert handed.find(KEY, 5_999) is not None
    assert handed.find(KEY, 6_000) is None
    assert len(handed) == 0


def test_the_oldest_go_when_there_is_too_much() -> None:
    handed = Handed(Settings(handed_bytes=1_000))
    keys = [ShardKey("q", number) for number in range(10)]
    for key in keys:
        give(handed, Snapshot(7, 0, [holder("p", 5)]), key=key)
    there = [key for key in keys if handed.find(key, 1_000) is not None]
    assert 0 < len(there) < 10
    assert there == keys[-len(there) :]
    assert handed._size <= 1_000


def test_what_another_version_packed_in_another_way_is_nothing() -> None:
    handed = Handed(Settings())
    handed.take(KEY, 7, b"\x91\xa1x", 0, last=True)
    assert handed.find(KEY, 0) is None
