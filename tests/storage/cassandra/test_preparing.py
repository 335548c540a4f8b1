"""Preparing: once for all who wait, and nobody's thread is held up. The driver is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from cassandra import OperationTimedOut

from pushlane_storage.cassandra.preparing import Preparing

TEXT = "SELECT 1"
ANSWER = SimpleNamespace(
    query_id=b"id", bind_metadata=[], pk_indexes=[], column_metadata=[], result_metadata_id=None
)


class Future:
    """A request to prepare, answered when the test says so."""

    made: ClassVar[list[Future]] = []

    def __init__(
        self, session: Any, message: Any, query: None, seconds: float,
        speculative_execution_plan: str,
    ) -> None:  # fmt: skip
        assert seconds == 7
        assert speculative_execution_plan == "a plan", "a second node is asked as well"
        self.text = message.query
        self.watched = self.sent = False
        self.made.append(self)

    def add_callbacks(self, ok: Any, failed: Any) -> None:
        self.answer, self.fail = ok, failed

    def send_request(self) -> None:
        assert self.watched, "who doesn't answer becomes a suspect"
        self.sent = True


class Policy:
    def new_plan(self, keyspace: None, statement: None) -> str:
        return "a plan"

    def watch(self, future: Future) -> None:
        future.watched = True


@pytest.fixture
def futures(monkeypatch: pytest.MonkeyPatch) -> list[Future]:
    monkeypatch.setattr("cassandra.cluster.ResponseFuture", Future)
    monkeypatch.setattr(Future, "made", [])
    return Future.made


@pytest.fixture
def known() -> dict[bytes, Any]:
    """What the driver was told of, so that it prepares it again where a node doesn't know it."""
    return {}


@pytest.fixture
def preparing(known: dict[bytes, Any]) -> Preparing:
    policy = Policy()
    profile = SimpleNamespace(speculative_execution_policy=policy, load_balancing_policy=policy)
    cluster = SimpleNamespace(
        profile_manager=SimpleNamespace(default=profile),
        metadata=None,
        protocol_version=5,
        add_prepared=known.__setitem__,
    )
    session: Any = SimpleNamespace(cluster=cluster)
    return Preparing(session, 7)


def test_all_who_ask_meanwhile_wait_for_one_request(
    preparing: Preparing, futures: list[Future], known: dict[bytes, Any]
) -> None:
    told: list[Exception | None] = []
    preparing.begin(TEXT, told.append)
    preparing.begin(TEXT, told.append)
    [future] = futures
    assert (future.text, future.sent, told) == (TEXT, True, [])
    assert preparing.find(TEXT) is None
    future.answer(ANSWER)
    assert told == [None, None]
    found = preparing.find(TEXT)
    assert found is not None
    assert found.query_string == TEXT
    assert known == {b"id": found}


def test_the_second_answer_of_two_nodes_says_nothing_new(
    preparing: Preparing, futures: list[Future]
) -> None:
    told: list[Exception | None] = []
    preparing.begin(TEXT, told.append)
    futures[0].answer(ANSWER)
    futures[0].answer(ANSWER)
    futures[0].fail(OperationTimedOut())
    assert told == [None]


def test_one_that_failed_is_asked_for_again(preparing: Preparing, futures: list[Future]) -> None:
    told: list[Exception | None] = []
    error = OperationTimedOut()
    preparing.begin(TEXT, told.append)
    futures[0].fail(error)
    assert told == [error]
    preparing.begin(TEXT, told.append)
    futures[1].answer(ANSWER)
    assert told == [error, None]


def test_an_answer_that_nobody_understands(preparing: Preparing, futures: list[Future]) -> None:
    told: list[Exception | None] = []
    preparing.begin(TEXT, told.append)
    futures[0].answer(None)
    assert isinstance(told[0], AttributeError)
    assert preparing.find(TEXT) is None
