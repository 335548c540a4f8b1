"""Ids are opaque to users and a place to us; what can't be one of ours is not found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import NotFound
from pushlane_dispatcher.core.ident import Place, make_id, make_ids, parse_id
from pushlane_storage.seq import make_seq

places = st.builds(
    Place, st.text("0123456789abcdef-", min_size=1), st.integers(0, 4_000), st.integers(0, 9),
    st.builds(make_seq, st.integers(0, 1 << 30), st.integers(0, (1 << 40) - 1)),
)  # fmt: skip


@given(places)
def test_an_id_names_its_place(place: Place) -> None:
    assert parse_id(make_id(*place)) == place


@given(places, st.integers(0, 10_000))
def test_many_ids_at_once_are_the_same(place: Place, count: int) -> None:
    expected = [make_id(*place[:3], place.seq + n) for n in range(count)]
    assert make_ids(*place, count) == expected


@given(places, places)
def test_no_two_places_share_an_id(one: Place, other: Place) -> None:
    assert (make_id(*one) == make_id(*other)) == (one == other)


def test_an_id_fits_the_wire() -> None:
    longest = make_id("f" * 32, 4_095, 9, make_seq((1 << 23) - 1, (1 << 40) - 1))
    assert len(longest) <= 128


@pytest.mark.parametrize(
    "forged",
    ["", "q", "q-1", "q-0-4", "q-0-4-", "q-0-4-xyz", "q-0-4- 1", "q-0-4-1 ", "q-0-4-01",
     "q-0-4-0x1", "q-0-4-+1", "q-0-4-1_0", "q-0-4-A", "q-0-4-١", "q-00-4-1"],
)  # fmt: skip
def test_what_is_no_id_is_not_found(forged: str) -> None:
    with pytest.raises(NotFound):
        parse_id(forged)
