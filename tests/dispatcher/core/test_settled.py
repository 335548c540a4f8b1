"""What is remembered of settled receipts."""

from __future__ import annotations

from pushlane_dispatcher.core.settled import Settled


def test_each_shard_has_its_own() -> None:
    settled = Settled()
    settled.keep("one", "p", {1, 2, 4}, 0)
    assert [n in settled.of("one", "p", 0) for n in range(1, 5)] == [True, True, False, True]
    assert 1 not in settled.of("other", "p", 0)
    assert 1 not in settled.of("one", "r", 0)


def test_for_a_while() -> None:
    settled = Settled(30_000, 10)
    settled.keep("q", "p", {1}, 0)
    settled.keep("q", "r", {1}, 20_000)
    assert 1 in settled.of("q", "p", 29_999)
    assert 1 not in settled.of("q", "p", 30_000)
    assert 1 in settled.of("q", "r", 30_000)
    assert len(settled) == 1


def test_as_many_as_there_may_be() -> None:
    settled = Settled(30_000, 2)
    for prefix in "pqr":
        settled.keep("q", prefix, {1}, 0)
        assert len(settled) <= 2
    assert 1 not in settled.of("q", "p", 0)
    assert 1 in settled.of("q", "q", 0)


def test_what_is_kept_again_is_kept_for_longer() -> None:
    settled = Settled(30_000, 2)
    settled.keep("q", "p", {1}, 0)
    settled.keep("q", "r", {1}, 10_000)
    settled.keep("q", "p", {2}, 20_000)
    assert 2 in settled.of("q", "p", 45_000)
    assert 1 not in settled.of("q", "r", 45_000)
