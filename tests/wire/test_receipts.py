"""Receipts as strings, one or a run of them: never longer than the protocol allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import MAX_INT
from pushlane.wire.receipts import compress, count, parse, parse_all, render, render_all
from tests.wire.strategies import prefixes


@pytest.mark.parametrize(
    ("receipt", "run"),
    [
        ("p.1", ("p", 1, 1)),
        ("p.7-9", ("p", 7, 9)),
        ("p.7-7", ("p", 7, 7)),
        ("p.1-10000", ("p", 1, 10_000)),
        ("a.b-c.12-13", ("a.b-c", 12, 13)),
        ("..1", (".", 1, 1)),
        (f"p.{MAX_INT}", ("p", MAX_INT, MAX_INT)),
        ("x" * 126 + ".1", ("x" * 126, 1, 1)),
    ],
)
def test_receipts_are_read(receipt: str, run: tuple[str, int, int]) -> None:
    assert parse(receipt) == run


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "p",
        ".1",
        "p.",
        "p.0",
        "p.01",
        "p.1-02",
        "p.-1",
        "p.1-",
        "p.1--2",
        "p.1-2-3",
        "p.0-1",
        "p.9-8",
        "p.1-10001",
        "p.1 ",
        " p.1",
        "p.1\n",
        "p q.1",
        "p.١",
        "ä.1",
        "p.+1",
        "p.1_0",
        "p.0x1",
        "p.1.5-",
        f"p.{MAX_INT + 1}",
        f"p.{MAX_INT}-{MAX_INT + 1}",
        "p." + "9" * 17,
        "p." + "9" * 5000,
        "x" * 127 + ".1",
        "\ud800.1",
    ],
)
def test_what_is_no_receipt_is_refused(receipt: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse(receipt)
    assert len(raised.value.message.encode()) < 1000


@given(st.text(max_size=140))
def test_any_text_is_a_receipt_or_a_bad_request(text: str) -> None:
    try:
        prefix, lo, hi = parse(text)
    except BadRequest:
        return
    assert 1 <= lo <= hi < lo + 10_000
    assert prefix


@given(prefixes, st.integers(1, MAX_INT), st.integers(0, 9999))
def test_what_is_rendered_is_read_back(prefix: str, lo: int, more: int) -> None:
    hi = min(lo + more, MAX_INT)
    assert parse(render(prefix, lo, hi)) == (prefix, lo, hi)


def test_one_number_needs_no_run() -> None:
    assert render("p", 3, 3) == "p.3"
    assert render("p", 3, 4) == "p.3-4"


@pytest.mark.parametrize(("lo", "hi"), [(0, 1), (2, 1), (1, 10_001), (1, MAX_INT + 1)])
def test_rendering_nonsense_is_our_bug(lo: int, hi: int) -> None:
    with pytest.raises(AssertionError):
        render("p", lo, hi)


def test_rendering_too_long_a_prefix_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        render("p" * 127, 1, 1)


@given(prefixes, st.sets(st.integers(1, 60)))
def test_compressing_keeps_the_numbers_in_the_fewest_runs(prefix: str, numbers: set[int]) -> None:
    runs = compress(prefix, sorted(numbers))
    read = [parse(run) for run in runs]
    assert [n for _, lo, hi in read for n in range(lo, hi + 1)] == sorted(numbers)
    assert len(runs) == sum(n - 1 not in numbers for n in numbers)


def test_compressing_keeps_runs_within_their_limit() -> None:
    assert compress("p", range(1, 10_001)) == ["p.1-10000"]
    assert compress("p", range(1, 10_002)) == ["p.1-10000", "p.10001"]
    assert compress("p", range(5, 25_005)) == ["p.5-10004", "p.10005-20004", "p.20005-25004"]
    assert compress("p", []) == []


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [0], [-1, 2]])
def test_compressing_what_does_not_ascend_is_our_bug(numbers: list[int]) -> None:
    with pytest.raises(AssertionError):
        compress("p", numbers)


def test_a_request_names_receipts_up_to_the_limit() -> None:
    assert parse_all(["p.1", "q.2-4"]) == [("p", 1, 1), ("q", 2, 4)]
    assert len(parse_all(["p.1-9999", "p.10000"])) == 2
    with pytest.raises(BadRequest, match="more than 10000"):
        parse_all(["p.1-9999", "p.10000-10001"])
    assert parse_all(["p.1-3"], limit=3)
    with pytest.raises(BadRequest, match="more than 3"):
        parse_all(["p.1-3", "p.1"], limit=3)


def test_a_request_names_at_least_one_receipt() -> None:
    with pytest.raises(BadRequest, match="receipts is empty"):
        parse_all([])


def test_runs_are_split_at_their_limit() -> None:
    assert render_all([("p", 1, 1), ("q", 2, 5)]) == ["p.1", "q.2-5"]
    assert render_all([("p", 1, 25_000)]) == ["p.1-10000", "p.10001-20000", "p.20001-25000"]
    assert count([("p", 1, 1), ("q", 2, 5)]) == 5


@given(st.lists(st.tuples(st.just("p"), st.integers(1, 10**6), st.integers(0, 30_000))))
def test_runs_of_any_length_are_read_back(starts: list[tuple[str, int, int]]) -> None:
    runs = [(prefix, low, low + more) for prefix, low, more in starts]
    read = [parse(text) for text in render_all(runs)]
    numbers = [n for _, low, high in read for n in range(low, high + 1)]
    assert numbers == [n for _, low, high in runs for n in range(low, high + 1)]
