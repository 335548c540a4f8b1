"""Nodes that leave requests unanswered are asked last, for a while."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane_storage.cassandra.wary import Wary

NODES = ["a", "b", "c"]
SECONDS = 15.0


class Child:
    """A policy that always says the same, and notes what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def make_query_plan(self, keyspace: str | None, query: object) -> Any:
        self.told.append((keyspace, query))
        yield from NODES

    def __getattr__(self, name: str) -> Any:
        def tell(*args: Any) -> str:
            self.told.append((name, *args))
            return f"{name} of the child"

        return tell


class Future:
    """A request that these nodes were asked, the answer of one of which came first."""

    def __init__(self, asked: list[str], by: str | None) -> None:
        self.attempted_hosts = asked
        self.coordinator_host = by

    def add_callbacks(
        self, ok: Any, failed: Any, *, callback_args: tuple[Any, ...], errback_args: tuple[Any, ...]
    ) -> None:
        if self.coordinator_host is None:
            failed(TimeoutError(), *errback_args)
        else:
            ok([], *callback_args)


class Time:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def child() -> Child:
    return Child()


@pytest.fixture
def wary(child: Child, time: Time) -> Wary:
    return Wary(child, SECONDS, time)


def plan(wary: Wary) -> str:
    return "".join(wary.make_query_plan("k", "q"))


def test_the_plan_is_the_childs(wary: Wary, child: Child) -> None:
    wary.watch(Future(["a"], by="a"))
    assert plan(wary) == "abc"
    assert child.told == [("k", "q")]


def test_one_that_another_had_to_step_in_for_is_asked_last(wary: Wary, time: Time) -> None:
    wary.watch(Future(["a", "b"], by="b"))
    assert plan(wary) == "bca"
    time.now += SECONDS - 1
    wary.watch(Future(["b", "c"], by="c"))
    assert plan(wary) == "cab"
    time.now += 1
    assert plan(wary) == "acb"
    time.now += SECONDS
    assert plan(wary) == "abc"


def test_the_first_may_have_answered_after_all(wary: Wary) -> None:
    wary.watch(Future(["a", "b"], by="a"))
    assert plan(wary) == "abc", "the second had less time than the first"


def test_nobody_answered(wary: Wary) -> None:
    wary.watch(Future(["a"], by=None))
    assert plan(wary) == "bca"
    wary.watch(Future(["b", "c"], by=None))
    assert plan(wary) == "abc", "all are suspects: the child's order counts"


@pytest.mark.parametrize("event", ["on_up", "on_remove"])
def test_one_that_is_back_is_trusted(wary: Wary, child: Child, event: str) -> None:
    wary.watch(Future(["a", "b"], by="b"))
    getattr(wary, event)("a")
    assert child.told == [(event, "a")]
    assert plan(wary) == "abc"


def test_the_rest_is_the_childs(wary: Wary, child: Child) -> None:
    wary.populate("cluster", NODES)
    wary.check_supported()
    assert wary.distance("a") == "distance of the child"
    wary.on_down("a")
    wary.on_add("d")
    assert child.told == [
        ("populate", "cluster", NODES), ("check_supported",), ("distance", "a"),
        ("on_down", "a"), ("on_add", "d"),
    ]  # fmt: skip
