"""Parts of the faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pushlane_history import event as history
from tests.crash.recorder import Recorder, merged
from tests.outages.cluster.faults import held, sparing, standing
from tests.outages.cluster.stage import ClusterStage


class Cluster:
    """A stage, as far as it matters here; each node is its own process."""

    def __init__(self, nodes: int = 2) -> None:
        self.recorder = Recorder(1)
        self.members = [Member() for _ in range(nodes)]
        self.on_busy: Callable[[], None] = lambda: None

    def wait_until_busy(self) -> None:
        self.on_busy()


class Member:
    def __init__(self) -> None:
        self.fencings = 1
        self.node = self

    def number(self, _metric: str) -> float:
        return float(self.fencings)


class Tap:
    """A way, or a node of Cassandra: what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.done.append(name)


def test_who_is_fenced_in_vain_is_told(tmp_path: Path) -> None:
    cluster = Cluster()
    stage = cast(ClusterStage, cluster)
    with sparing(stage):
        pass

    def fenced_late() -> None:
        cluster.members[1].fencings += 1

    cluster.on_busy = fenced_late
    with sparing(stage):
        cluster.members[0].fencings += 1
    cluster.recorder.write(tmp_path / "history")
    bounds = [one for one in merged([tmp_path / "history"]) if isinstance(one, history.Bound)]
    assert [(bound.value, bound.limit) for bound in bounds] == [(0, 0), (2, 0)]


def test_ways_and_nodes_go_on_also_when_something_fails() -> None:
    ways, nodes = [Tap(), Tap()], [Tap(), Tap()]
    try:
        with held(ways), standing(cast(Any, nodes)):
            raise ValueError
    except ValueError:
        pass
    assert [way.done for way in ways] == [["hold", "let_go"]] * 2
    assert [node.done for node in nodes] == [["pause", "resume"]] * 2
