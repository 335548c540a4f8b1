from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.ident import parse_id
from pushlane_storage.seq import COUNTER_MASK, counter_of, epoch_of, make_id, make_seq

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


def test_an_id_names_its_place() -> None:
    message_id = make_id("q-1", 17, 9, 1 << 40 | 255)
    assert message_id == "q-1-11-9-100000000ff"
    assert parse_id(message_id) == ("q-1", 17, 9, 1 << 40 | 255)
