"""Runs as strings: never longer than the protocol allows."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.receipts import count, parse, render_all


def test_examples() -> None:
    assert render_all([("p", 1, 1), ("q", 2, 5)]) == ["p.1", "q.2-5"]
    assert render_all([("p", 1, 25_000)]) == ["p.1-10000", "p.10001-20000", "p.20001-25000"]
    assert count([("p", 1, 1), ("q", 2, 5)]) == 5


@given(st.lists(st.tuples(st.just("p"), st.integers(1, 10**6), st.integers(0, 30_000))))
def test_what_is_written_names_the_same(spans: list[tuple[str, int, int]]) -> None:
    runs = [(prefix, low, low + more) for prefix, low, more in spans]
    read = [parse(text) for text in render_all(runs)]
    numbers = [n for _, low, high in read for n in range(low, high + 1)]
    assert numbers == [n for _, low, high in runs for n in range(low, high + 1)]
