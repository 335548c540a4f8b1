"""Seals: where each older epoch ends."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.seal import Seal, Seals


def test_without_a_seal_everything_may_exist() -> None:
    seals = Seals()
    assert seals.counters(4, 1) is None
    assert seals.flushes(1) is None


def test_a_seal_says_where_an_epoch_ends() -> None:
    seals = Seals([Seal(2, [(4, 1, 10), (9, 1, 0)], [(1, 3)])])
    assert (seals.counters(4, 1), seals.counters(9, 1)) == (10, 0)
    assert seals.flushes(1) == 3


def test_what_a_seal_does_not_mention_does_not_exist() -> None:
    seals = Seals([Seal(4, [(4, 1, 10)], [(1, 3)])])
    assert seals.counters(0, 1) == 0
    assert seals.counters(4, 3) == 0
    assert seals.flushes(2) == 0


def test_a_seal_says_nothing_of_its_owner_and_later_ones() -> None:
    seals = Seals([Seal(4, [], [])])
    assert seals.counters(4, 4) is None
    assert seals.flushes(4) is None
    assert seals.counters(4, 5) is None


def test_the_newest_seal_decides() -> None:
    # The owner with epoch 2 read 10 counters of epoch 1 and stalled. An 11th landed, the owner
    # with epoch 3 sealed 11 and confirmed it; then the first seal landed, too late to count.
    late = Seal(2, [(4, 1, 10)], [(1, 3)])
    newest = Seal(3, [(4, 1, 11), (4, 2, 7)], [(1, 4), (2, 6)])
    for seals in (Seals([late, newest]), Seals([newest, late])):
        assert (seals.counters(4, 1), seals.flushes(1)) == (11, 4)
        assert (seals.counters(4, 2), seals.flushes(2)) == (7, 6)
        assert seals.counters(4, 3) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6))
def test_rows_of_a_zombie_change_nothing(stored: list[tuple[int, int]]) -> None:
    """Each owner carries on what the seals before it say, whatever a zombie added since."""
    rows: list[Seal] = []
    for owner in range(1, len(stored)):
        before = Seals(rows)
        counters, flushes = [], []
        for epoch in range(owner):
            found = stored[epoch][0] + owner - 1 - epoch  # more with every owner
            sealed = before.counters(4, epoch)
            counters.append((4, epoch, found if sealed is None else min(found, sealed)))
            flushes.append((epoch, stored[epoch][1]))
        rows.append(Seal(owner, counters, flushes))
    seals = Seals(rows)
    for epoch, expected in enumerate(stored[:-1]):
        assert (seals.counters(4, epoch), seals.flushes(epoch)) == expected
