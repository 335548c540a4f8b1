from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.seq import COUNTER_MASK, counter_of, epoch_of, make_seq

places = st.tuples(st.integers(0, 1 << 22), st.integers(0, COUNTER_MASK))


@given(places)
def test_a_seq_gives_back_its_parts(place: tuple[int, int]) -> None:
    seq = make_seq(*place)
    assert (epoch_of(seq), counter_of(seq)) == place


@given(places, places)
def test_order_is_by_epoch_then_counter(one: tuple[int, int], two: tuple[int, int]) -> None:
    assert (make_seq(*one) < make_seq(*two)) == (one < two)


def test_seqs_fit_a_signed_64_bit_column() -> None:
    assert make_seq((1 << 23) - 1, COUNTER_MASK) == (1 << 63) - 1
