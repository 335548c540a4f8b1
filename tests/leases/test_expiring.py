"""The bounded map with times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.expiring import Expiring

keys = st.integers(0, 20)


def test_entries_are_good_until_their_time() -> None:
    kept: Expiring[str, int] = Expiring(10)
    kept.put(["a", "b"], [1, 2], until=100)
    assert (kept.get("a", 99), kept.get("b", 99), kept.get("c", 99)) == (1, 2, None)
    assert kept.get("a", 100) is None
    kept.put(["a"], [3], until=200)
    assert (kept.get("a", 150), kept.get("b", 150)) == (3, None)


def test_dropping() -> None:
    kept: Expiring[str, int] = Expiring(10)
    kept.put(["a"], [1], until=100)
    for _ in range(2):
        kept.drop("a")
    assert kept.get("a", 0) is None
    assert len(kept) == 0


def test_the_soonest_to_expire_go_first() -> None:
    kept: Expiring[int, int] = Expiring(16)
    for key in (3, 0, 1, 2, *range(4, 16)):
        kept.put([key], [key], until=1_000 + key)
    assert (len(kept), kept.forgotten) == (16, 0)
    kept.put([16], [16], until=5_000)
    assert [key for key in range(17) if kept.get(key, 0) is None] == [0, 1, 2]
    assert (len(kept), kept.forgotten) == (14, 3)


def test_a_batch_larger_than_the_limit() -> None:
    kept: Expiring[int, int] = Expiring(8)
    kept.put(range(100), range(100), until=10)
    assert len(kept) == 7
    assert kept.forgotten == 93


@given(st.integers(1, 9), st.lists(st.tuples(keys, st.integers(0, 50)), max_size=40))
def test_it_never_holds_more_than_its_limit(limit: int, puts: list[tuple[int, int]]) -> None:
    kept: Expiring[int, int] = Expiring(limit)
    known: dict[int, tuple[int, int]] = {}
    for number, (key, until) in enumerate(puts):
        kept.put([key], [number], until)
        known[key] = (number, until)
        assert len(kept) <= limit
        for one, (value, end) in known.items():
            assert kept.get(one, 25) in ((value, None) if end > 25 else (None,))


def test_a_limit_is_needed() -> None:
    with pytest.raises(AssertionError):
        Expiring(0)
