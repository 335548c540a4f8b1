"""Every back end against a model with one entry per receipt."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from pushlane.wire.receipts import ReceiptRun
from pushlane_leases.interface import LeaseCache, LeaseRun, StaleEpoch
from tests.leases.backends import BACKENDS, Backend, Factory
from tests.leases.samples import NOW, Receipt, by_receipt, run, unique
from tests.portal import Portal

R = TypeVar("R")

TICK_MS = 7_001
"""No multiple of it is a time to live: a back end may see the very moment either way."""

shards = st.sampled_from(["x", "y"])
ids = st.sampled_from(["a", "b", "c"])
lots = st.binary(max_size=3)
stale = st.sampled_from([False, False, False, True])
ttls = st.sampled_from([20_000, 40_000, 60_000])
prefixes = st.sampled_from(["p", "q"])
numbers = st.integers(0, 30)
runs = st.builds(
    lambda n, count, prefix, started: run(n, count, prefix=prefix, started=started),
    numbers,
    st.integers(1, 12),
    prefixes,
    st.booleans(),
)
receipts = st.builds(
    lambda prefix, low, more: (prefix, low, low + more), prefixes, numbers, numbers
)


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self, factory: Factory) -> None:
        super().__init__()
        self.portal: Portal[Backend] = Portal(factory)
        self.salt = unique("")
        self.now = NOW
        self.epochs: dict[str, int] = {"x": 1, "y": 1}
        self.out: dict[str, dict[Receipt, LeaseRun]] = {"x": {}, "y": {}}
        self.marks: dict[tuple[str, str], tuple[bytes, int]] = {}

    def teardown(self) -> None:
        try:
            for shard in ("x", "y"):
                self.claim(shard, stale=False)
                self.recall(shard, ["a", "b", "c"])
        finally:
            self.portal.close()

    @property
    def leases(self) -> LeaseCache:
        backend: Backend = self.portal.held
        return backend.leases

    def as_owner(
        self, method: Callable[..., Awaitable[R]], shard: str, stale: bool, *args: Any
    ) -> R | None:
        """Call as the owner, or as its predecessor: that must fail, and None is the answer."""
        name, epoch = self.salt + shard, self.epochs[shard]
        if not stale:
            return self.portal.call(method, name, epoch, *args)
        with pytest.raises(StaleEpoch):
            self.portal.call(method, name, epoch - 1, *args)
        return None

    @initialize()
    def first_claims(self) -> None:
        for shard in ("x", "y"):
            self.claim(shard, stale=False)

    @rule(shard=shards, stale=stale)
    def claim(self, shard: str, stale: bool) -> None:
        self.epochs[shard] += not stale
        found = self.as_owner(self.leases.claim, shard, stale, self.now)
        if found is not None:
            known = self.out[shard].items()
            self.out[shard] = {place: one for place, one in known if one.deadline > self.now}
            assert by_receipt(found) == self.out[shard]

    @rule(shard=shards, stale=stale, granted=st.lists(runs, max_size=3), ttl=ttls)
    def grant(self, shard: str, stale: bool, granted: list[LeaseRun], ttl: int) -> None:
        granted = [msgspec.structs.replace(one, deadline=self.now + ttl) for one in granted]
        self.as_owner(self.leases.grant, shard, stale, granted)
        if not stale:
            for one in granted:
                self.out[shard] |= by_receipt([one])

    @rule(shard=shards, stale=stale, settled=st.lists(receipts, max_size=3))
    def release(self, shard: str, stale: bool, settled: list[ReceiptRun]) -> None:
        self.as_owner(self.leases.release, shard, stale, settled)
        if not stale:
            for prefix, low, high in settled:
                for n in range(low, high + 1):
                    self.out[shard].pop((prefix, n), None)

    @rule(shard=shards, stale=stale, marks=st.lists(st.tuples(ids, lots), max_size=3), ttl=ttls)
    def remember(self, shard: str, stale: bool, marks: list[tuple[str, bytes]], ttl: int) -> None:
        self.as_owner(self.leases.remember, shard, stale, marks, ttl, self.now)
        if not stale:
            for id, message in marks:
                self.marks[shard, id] = (message, self.now + ttl)

    @rule(shard=shards, asked=st.lists(ids))
    def recall(self, shard: str, asked: list[str]) -> None:
        found = self.portal.call(self.leases.recall, self.salt + shard, asked, self.now)
        known = {id: self.marks.get((shard, id), (b"", 0)) for id in asked}
        assert found == {id: message for id, (message, end) in known.items() if end > self.now}

    @rule(ticks=st.integers(1, 4))
    def pass_time(self, ticks: int) -> None:
        self.now += ticks * TICK_MS

    @rule()
    def reopen(self) -> None:
        self.portal.call(self.portal.held.reopen)


@pytest.mark.parametrize("factory", BACKENDS, ids=lambda factory: factory.__name__)
def test_a_cache_does_what_its_model_does(factory: Factory) -> None:
    class Machine(LeaseMachine):
        def __init__(self) -> None:
            super().__init__(factory)

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=150, stateful_step_count=30, deadline=None)
    )
