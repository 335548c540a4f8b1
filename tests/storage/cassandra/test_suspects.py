"""Nodes that leave requests unanswered are asked last, for a while."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane_storage.cassandra.suspects import SuspectsLast

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
def policy(child: Child, time: Time) -> SuspectsLast:
    return SuspectsLast(child, SECONDS, time)


def plan(policy: SuspectsLast) -> str:
    return "".join(policy.make_query_plan("k", "q"))


def test_the_plan_is_the_childs(policy: SuspectsLast, child: Child) -> None:
    policy.watch(Future(["a"], by="a"))
    assert plan(policy) == "abc"
    assert child.told == [("k", "q")]


def test_one_that_another_had_to_step_in_for_is_asked_last(
    policy: SuspectsLast, time: Time
) -> None:
    policy.watch(Future(["a", "b"], by="b"))
    assert plan(policy) == "bca"
    time.now += SECONDS - 1
    policy.watch(Future(["b", "c"], by="c"))
    assert plan(policy) == "cab"
    time.now += 1
    assert plan(policy) == "acb"
    time.now += SECONDS
    assert plan(policy) == "abc"


def test_the_first_may_have_answered_after_all(policy: SuspectsLast) -> None:
    policy.watch(Future(["a", "b"], by="a"))
    assert plan(policy) == "abc", "the second had less time than the first"


def test_nobody_answered(policy: SuspectsLast) -> None:
    policy.watch(Future(["a"], by=None))
    assert plan(policy) == "bca"
    policy.watch(Future(["b", "c"], by=None))
    assert plan(policy) == "abc", "all are suspects: the child's order counts"


def test_who_becomes_a_suspect_is_named_once(
    policy: SuspectsLast, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        policy.watch(Future(["a", "b"], by="b"))
        time.now += SECONDS - 1
        assert policy.count == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Cassandra node a left a request unanswered: it is asked last for 15 s"
    ]
    time.now += 1
    assert policy.count == 0
    policy.watch(Future(["a", "b"], by="b"))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("event", ["on_up", "on_remove"])
def test_one_that_is_back_is_trusted(policy: SuspectsLast, child: Child, event: str) -> None:
    policy.watch(Future(["a", "b"], by="b"))
    getattr(policy, event)("a")
    assert child.told == [(event, "a")]
    assert plan(policy) == "abc"


def test_the_rest_is_the_childs(policy: SuspectsLast, child: Child) -> None:
    policy.populate("cluster", NODES)
    policy.check_supported()
    assert policy.distance("a") == "distance of the child"
    policy.on_down("a")
    policy.on_add("d")
    assert child.told == [
        ("populate", "cluster", NODES), ("check_supported",), ("distance", "a"),
        ("on_down", "a"), ("on_add", "d"),
    ]  # fmt: skip
