"""Runs and values as they stand in Redis."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.redis.entry import decode_run, decode_value, encode_run, encode_value, number
from tests.leases.samples import NOW, run

numbers = st.integers(0, (1 << 53) - 1)


@given(st.text(), numbers, st.integers(1, 10_000), st.integers(0, (1 << 63) - 1), st.text())
def test_a_run_comes_back(prefix: str, n: int, count: int, seq: int, session: str) -> None:
    whole = run(n, count, prefix=prefix, seq=seq, session=session, started=True)
    assert decode_run(encode_run(whole)) == whole


def test_a_part_of_a_run_counts_its_seqs_on() -> None:
    """As the scripts cut it: other numbers in front of the same rest."""
    big = 8_191 << 40  # past what Lua could count exactly
    whole = encode_run(run(10, 5, seq=big + 7))
    part = whole.replace(number(10).encode(), number(12).encode(), 1)
    part = part.replace(number(14).encode(), number(13).encode(), 1)
    assert decode_run(part) == run(12, 2, seq=big + 9)


def test_runs_sort_by_their_numbers() -> None:
    firsts = [0, 9, 10, 99, 1_000, 1 << 40, (1 << 53) - 1]
    entries = [encode_run(run(n)) for n in firsts]
    assert sorted(entries) == entries


def test_a_prefix_has_no_space() -> None:
    assert encode_run(run(1, prefix="a b ")).startswith(b"a%20b%20 ")


def test_a_value_is_good_until_its_time() -> None:
    entry = encode_value(b"\x00 value", NOW)
    assert decode_value(entry, NOW - 1) == b"\x00 value"
    assert decode_value(entry, NOW) is None
    assert decode_value(None, NOW) is None
