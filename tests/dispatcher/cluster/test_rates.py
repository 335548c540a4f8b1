"""Messages a second, from counters."""

from __future__ import annotations

import pytest

from pushlane_dispatcher.cluster.rates import SAMPLES, Rates


def test_rates_are_of_the_last_seconds() -> None:
    rates = Rates()
    assert rates.per_second(0) == 0
    rates.note(0, 0, 0)
    assert rates.per_second(1) == 0
    rates.note(2, 10, 200)
    assert (rates.per_second(0), rates.per_second(1)) == (5, 100)
    for second in range(4, 40, 2):
        rates.note(second, 10, 200)
    assert (rates.per_second(0), rates.per_second(1)) == (0, 0)


def test_whoever_looks_often_keeps_no_more_for_it() -> None:
    rates = Rates()
    for n in range(10 * SAMPLES):
        rates.note(n / 1000, n)
    assert rates.per_second(0) == pytest.approx(1000)
    assert len(rates._samples) == SAMPLES
