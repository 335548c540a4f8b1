"""`pushlane cluster`: what people and programs see of the nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pushlane.asyncio import http
from pushlane.core.queues import Call
from pushlane.wire.errors import Conflict, ConnectionLost, Forbidden
from tests.sdk.commands.shell import Shell


def node(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name, "process": f"p-{name}", "this": False, "state": "up", "state_ms": 125_000,
        "why": None, "version": "0.1.0", "address": f"{name}:8421", "url": f"http://{name}:8420",
        "roles": ["gateway"], "weight": 100, "slots": 4, "placed": 85, "clock_ahead_ms": 3,
        "latency_ms": 0.8, "sessions": 12, "published": 1234.6, "delivered": 0.0,
        "oldest_ms": 65_000, "lag_ms": 7, "breaker": "closed", **changed,
    }  # fmt: skip


STATUS: dict[str, Any] = {
    "shared": True,
    "cluster": "pushlane",
    "nodes": [
        node("a", this=True, latency_ms=None),
        node(
            "b",
            roles=["gateway", "dispatcher"],
            state="unreachable",
            sessions=None,
            published=None,
            delivered=None,
            slots=None,
            oldest_ms=None,
            lag_ms=None,
            latency_ms=None,
            breaker="half_open",
        ),
    ],
    "orphans": 2,
    "gone": [{"name": "c", "process": "p-c", "why": "its heart stands still", "ago_ms": 65_000}],
    "problems": [{"code": "unreachable", "nodes": ["b"], "text": "node b can't be reached: cut"}],
}


class Answers:
    """Instead of a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Call] = []
        self.tokens: list[str | None] = []
        self.answers: list[Any] = []
        monkeypatch.setattr(http, "request", self._request)

    async def _request(self, _: Any, call: Call, token: str | None, *__: Any) -> Any:
        self.calls.append(call)
        self.tokens.append(token)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def test_nodes_and_problems_are_listed(shell: Shell, server: Answers) -> None:
    server.answers = [STATUS]
    head, a, b, *rest = shell("cluster", "status").splitlines()
    assert server.calls == [Call("GET", "/v1/cluster")]
    assert head.split()[:5] == ["NAME", "ROLE", "STATE", "FOR", "SLOTS"]
    assert a.split()[:8] == ["a", "*", "gateway", "up", "2m", "5s", "4", "85"]
    assert "1,235/s" in a
    assert a.split()[-8:-3] == ["5s", "7", "ms", "-", "closed"]
    assert b.split()[:10] == ["b", "both", "unreachable", "2m", "5s", "-", "85", "-", "-", "-"]
    assert b.split()[10:14] == ["-", "-", "-", "half_open"]
    assert rest == [
        "2 slots of nodes that are gone: somebody takes them with their next use",
        "c went 1m 5s ago: its heart stands still",
        "! node b can't be reached: cut",
    ]


def test_programs_get_all_of_it(shell: Shell, server: Answers) -> None:
    server.answers = [STATUS]
    assert shell.json("cluster", "status") == STATUS


def test_a_server_of_its_own_says_so(shell: Shell, server: Answers) -> None:
    server.answers = [{"shared": False, "nodes": []}]
    assert shell("cluster", "status") == ""
    assert "there is no cluster" in shell.err


@pytest.mark.parametrize(("error", "status"), [(Forbidden("no"), 4), (ConnectionLost("no"), 3)])
def test_errors_end_it_as_other_commands(
    shell: Shell, server: Answers, error: Exception, status: int
) -> None:
    server.answers = [error]
    shell("cluster", "status", status=status)
    assert "no" in shell.err


def test_watching_goes_on_while_a_server_is_away(
    shell: Shell, server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    alone = {**STATUS, "problems": [], "nodes": []}
    server.answers = [STATUS, ConnectionLost("it is away"), alone, KeyboardInterrupt()]
    lines = shell.lines("cluster", "status", "--watch", status=130)
    assert lines == [STATUS, alone]
    assert "it is away" in shell.err
    assert len(slept) == 3


def test_it_sends_the_token(shell: Shell, server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_TOKEN", "secret")
    server.answers = [STATUS]
    shell("cluster", "status")
    assert server.tokens == ["secret"]


def test_a_node_is_drained_and_taken_back(shell: Shell, server: Answers) -> None:
    server.answers = [{}, {}]
    shell("cluster", "drain", "b")
    assert "b gives its slots to the other nodes" in shell.err
    shell("cluster", "drain", "b", "--undo")
    assert "b takes slots again" in shell.err
    assert [call.body for call in server.calls] == [
        {"node": "b", "undo": False},
        {"node": "b", "undo": True},
    ]
    assert {(call.method, call.target) for call in server.calls} == {("POST", "/v1/cluster/drain")}


def test_the_last_node_is_not_drained(shell: Shell, server: Answers) -> None:
    server.answers = [Conflict("node a can't be drained: no other node could take its slots")]
    shell("cluster", "drain", "a", status=1)
    assert "no other node could take its slots" in shell.err
