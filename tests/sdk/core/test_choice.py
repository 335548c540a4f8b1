"""Which transport it is, by what happened."""

from __future__ import annotations

import pytest

from pushlane.core.choice import NO_ANSWER, Choice, Wish
from pushlane.core.settings import Settings

SETTINGS = Settings(upgrade_tries=3, cut_ms=60_000, probe_base_ms=10_000, probe_max_ms=40_000)


def choice(wish: Wish = "auto") -> Choice:
    return Choice(wish, SETTINGS, lambda: 0.5)


def polling() -> Choice:
    found = choice()
    assert found.refused(400)
    found.welcomed(0)
    return found


@pytest.mark.parametrize("wish", ["ws", "poll"])
def test_a_wish_is_never_changed(wish: Wish) -> None:
    found = choice(wish)
    for _ in range(10):
        assert not found.refused(400)
        found.welcomed(0)
        found.lost(1)
        assert not found.repent()
    assert found.transport == wish
    assert found.probe_at is None


@pytest.mark.parametrize("status", [400, 404, 426])
def test_one_refusal_is_enough_where_nothing_worked(status: int) -> None:
    assert choice().refused(status)


@pytest.mark.parametrize("status", [NO_ANSWER, 500, 502])
def test_failures_are_counted(status: int) -> None:
    found = choice()
    assert [found.refused(status) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_some_say_nothing_about_websockets(status: int) -> None:
    found = choice()
    assert not any(found.refused(status) for _ in range(10))


def test_three_young_cuts_in_a_row() -> None:
    found = choice()
    for _ in range(3):
        assert found.transport == "ws"
        found.welcomed(0)
        found.lost(59_999)
    assert found.transport == "poll"


@pytest.mark.parametrize("between", [None, 60_000])
def test_cuts_with_something_else_between(between: float | None) -> None:
    found = choice()
    for _ in range(5):
        found.lost(1)
        found.lost(1)
        found.lost(between)
    assert found.transport == "ws"


def test_probes_come_ever_less_often_until_a_websocket_lasted() -> None:
    found = polling()
    waits = []
    for _ in range(4):
        assert found.probe_at is not None
        waits.append(found.probe_at)
        found.probe_later(0)
    assert waits == [5_000, 10_000, 20_000, 20_000]
    found.change()
    assert found.probe_at is None
    found.welcomed(0)
    found.lost(60_000)
    assert [found.refused(NO_ANSWER) for _ in range(3)] == [False, False, True]
    found.welcomed(0)
    assert found.probe_at == 5_000


@pytest.mark.parametrize("status", [NO_ANSWER, 400, 502])
def test_after_a_probe_the_first_failure_is_enough(status: int) -> None:
    found = polling()
    found.change()
    assert not found.is_polling
    assert found.refused(status)
    assert found.is_polling


def test_repent_only_where_a_websocket_worked() -> None:
    assert not polling().repent()
    found = polling()
    found.change()
    found.welcomed(0)
    for _ in range(3):
        found.lost(1)
    assert found.is_polling
    assert found.repent()
    assert found.transport == "ws"
    assert not any(found.refused(400) for _ in range(10))
