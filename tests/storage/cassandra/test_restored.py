"""After a snapshot was restored no epoch is given out a second time."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import msgspec
import pytest
import trio.testing

from pushlane import cli
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.restored import Restored
from pushlane_storage.errors import EpochsExhausted
from pushlane_storage.restored_epoch import BURST, LAST
from pushlane_storage.slot import SLOTS
from tests.held import let_go
from tests.services import service
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.cassandra.tools import NODE, connection_to
from tests.storage.samples import unique

TAKEN = 1_700_000_000_000
HOUR_MS = 3_600_000


def raising(tables: Tables, age_ms: int = HOUR_MS, fate: Any = lambda *_: "fine") -> Restored:
    decisions = Decisions(FaultyRing(ModelRing(tables), fate), 8)
    return Restored(decisions, Limits(), "", TAKEN, TAKEN + age_ms)


async def test_every_slot_goes_on_far_above(join: Join, tables: Tables) -> None:
    store = await join()
    for _ in range(3):
        await store.ownership.claim(7, "alpha")
    await let_go(store)
    assert await raising(tables).run() == 3 + BURST + 120
    again = await join()
    assert await again.ownership.claim(7, "beta") == 3 + BURST + 120 + 1
    for slot in (0, 8, SLOTS - 1):  # claimed for the first time after the snapshot, perhaps
        assert await again.ownership.claim(slot, "beta") == BURST + 120 + 1


async def test_an_owner_that_was_not_stopped_starts_anew(
    join: Join, tables: Tables, autojump_clock: trio.testing.MockClock
) -> None:
    store = await join()
    epoch = await store.ownership.claim(7, "alpha")
    await raising(tables).run()
    assert await store.ownership.lost() == [(7, epoch)]
    assert await store.ownership.claim(7, "alpha") > BURST


async def test_unknown_outcomes_are_decided(tables: Tables) -> None:
    fates: defaultdict[Any, Iterator[str]] = defaultdict(lambda: cycle(["lost", "done"]))

    def fate(kind: str, change: Any) -> str:
        return next(fates[change.key]) if kind == "change" else "fine"

    assert await raising(tables, fate=fate).run() == BURST + 120


async def test_a_snapshot_that_is_too_old(tables: Tables) -> None:
    with pytest.raises(EpochsExhausted):
        await raising(tables, age_ms=LAST * 30_000).run()


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keyspace = unique("k").replace("-", "_")
    url = service(NODE).cassandra_url(keyspace)
    taken_at = ("--taken-at", "2026-01-01T00:00:00+00:00")

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["pushlane", "store", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    assert run("restored", url, *taken_at)[0] == 1, "there are no tables yet"
    assert run("migrate", url)[0] == 0
    status, out, _ = run("restored", url, *taken_at)
    assert status == 0
    assert out.startswith(f"keyspace {keyspace} goes on above epoch ")
    first = int(out.split()[-1])
    assert first > BURST
    status, out, _ = run("restored", url, *taken_at, "--json")
    assert msgspec.json.decode(out)["epoch"] > first
    status, _, told = run("restored", url, "--taken-at", "yesterday")
    assert (status, "'yesterday' is not a time" in told) == (2, True)
    assert run("restored", "sqlite:here", *taken_at)[0] == 2
    connection_to(NODE).execute(f"DROP KEYSPACE {keyspace}", 60.0)
