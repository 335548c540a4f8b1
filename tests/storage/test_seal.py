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


def test_the_oldest_seal_decides() -> None:
    # The owner with epoch 2 sealed epoch 1 at 10 counters and 3 flushes. Then a paused
    # predecessor wrote on; the owner with epoch 3 saw that, and its word doesn't count.
    older = Seal(2, [(4, 1, 10)], [(1, 3)])
    newer = Seal(3, [(4, 1, 15), (4, 2, 7)], [(1, 5), (2, 6)])
    for seals in (Seals([older, newer]), Seals([newer, older])):
        assert (seals.counters(4, 1), seals.flushes(1)) == (10, 3)
        assert (seals.counters(4, 2), seals.flushes(2)) == (7, 6)
        assert seals.counters(4, 3) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6))
def test_rows_of_a_zombie_change_nothing(stored: list[tuple[int, int]]) -> None:
    """Each owner seals all epochs before it, with whatever a zombie added to them meanwhile."""
    rows = []
    for owner in range(1, len(stored)):
        added = [owner - 1 - epoch for epoch in range(owner)]  # after the first owner sealed it
        counters = [(4, epoch, stored[epoch][0] + added[epoch]) for epoch in range(owner)]
        flushes = [(epoch, stored[epoch][1] + added[epoch]) for epoch in range(owner)]
        rows.append(Seal(owner, counters, flushes))
    seals = Seals(reversed(rows))
    for epoch, expected in enumerate(stored[:-1]):
        assert (seals.counters(4, epoch), seals.flushes(epoch)) == expected
