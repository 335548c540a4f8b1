"""What every lease cache must do. `test_conformance.py` runs it over all back ends.

A cache may forget at any time; these tests want it to remember while it has room and is not
disturbed.
"""

from collections.abc import Awaitable, Callable

import pytest

from pushlane_leases.interface import KeptSession, LeaseCache, LeaseRun, StaleEpoch
from tests.leases.samples import LEASE_MS, NOW, by_receipt, run

Reopen = Callable[[], Awaitable[LeaseCache]]


async def out(leases: LeaseCache, shard: str, now: int = NOW, epoch: int = 1) -> list[int]:
    """The receipt numbers that are out."""
    runs = await leases.claim(shard, epoch, now)
    return sorted(n for _, n in by_receipt(runs))


class LeaseConformance:
    # Claims and epochs

    async def test_a_new_shard_has_nothing_out(self, leases: LeaseCache, shard: str) -> None:
        assert await leases.claim(shard, 1, NOW) == []

    async def test_an_older_epoch_is_refused_and_changes_nothing(
        self, leases: LeaseCache, shard: str
    ) -> None:
        await leases.grant(shard, 2, [run(1)])
        await leases.claim(shard, 3, NOW)
        with pytest.raises(StaleEpoch):
            await leases.claim(shard, 2, NOW)
        with pytest.raises(StaleEpoch):
            await leases.grant(shard, 2, [run(2)])
        with pytest.raises(StaleEpoch):
            await leases.release(shard, 2, [("p", 1, 1)])
        with pytest.raises(StaleEpoch):
            await leases.remember(shard, 2, [("d", b"id")], 1_000, NOW)
        assert await out(leases, shard, epoch=3) == [1]
        assert await leases.recall(shard, ["d"], NOW) == {}

    @pytest.mark.parametrize("call", ["grant", "release", "remember"])
    async def test_every_call_of_a_newer_owner_shuts_out_the_older(
        self, leases: LeaseCache, shard: str, call: str
    ) -> None:
        await leases.claim(shard, 1, NOW)
        if call == "grant":
            await leases.grant(shard, 2, [run(1)])
        elif call == "release":
            await leases.release(shard, 2, [("p", 1, 1)])
        else:
            await leases.remember(shard, 2, [("d", b"id")], 1_000, NOW)
        with pytest.raises(StaleEpoch):
            await leases.grant(shard, 1, [run(2)])

    async def test_the_same_epoch_may_claim_again(self, leases: LeaseCache, shard: str) -> None:
        await leases.claim(shard, 5, NOW)
        await leases.grant(shard, 5, [run(1)])
        assert await out(leases, shard, epoch=5) == [1]

    async def test_the_store_s_owner_overwrites_what_knows_a_newer_one(
        self, leases: LeaseCache, shard: str
    ) -> None:
        await leases.grant(shard, 9, [run(1)])
        with pytest.raises(StaleEpoch) as stale:
            await leases.claim(shard, 5, NOW)
        assert stale.value.newest == 9
        await leases.overwrite(shard, 5, 9)
        assert await out(leases, shard, epoch=5) == [], "what is out was another history's"
        await leases.grant(shard, 5, [run(2)])
        assert await out(leases, shard, epoch=5) == [2]
        with pytest.raises(StaleEpoch):
            await leases.grant(shard, 4, [run(3)])

    async def test_only_what_was_seen_is_overwritten(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 8, [run(1)])
        with pytest.raises(StaleEpoch) as stale:
            await leases.overwrite(shard, 5, 9)
        assert stale.value.newest == 8
        assert await out(leases, shard, epoch=8) == [1]
        await leases.overwrite(shard, 8, 9)
        await leases.overwrite(shard + "x", 1, 9)
        assert await out(leases, shard, epoch=8) == [1], "a claim like any other"
        assert await out(leases, shard + "x", epoch=1) == []

    async def test_shards_have_epochs_of_their_own(self, leases: LeaseCache, shard: str) -> None:
        await leases.claim(shard, 9, NOW)
        await leases.grant(shard + "x", 1, [run(1)])
        assert await out(leases, shard + "x") == [1]

    async def test_it_outlives_the_owner_s_process(
        self, leases: LeaseCache, reopen: Reopen, shard: str
    ) -> None:
        await leases.grant(shard, 3, [run(1, 3)])
        await leases.remember(shard, 3, [("d", b"id")], LEASE_MS, NOW)
        leases = await reopen()
        with pytest.raises(StaleEpoch):
            await leases.claim(shard, 2, NOW)
        assert await out(leases, shard, epoch=4) == [1, 2, 3]
        assert await leases.recall(shard, ["d"], NOW) == {"d": b"id"}

    # Grants

    async def test_every_field_of_a_run_comes_back(self, leases: LeaseCache, shard: str) -> None:
        full = LeaseRun(
            prefix="přípona",
            n=(1 << 53) - 3,
            count=3,
            lane=9,
            seq=7 << 40 | 5,
            fence=7 << 20 | 3,
            session="s ☹",
            attempts=4,
            deliveries=19,
            started=True,
            lease_ms=12 * 3_600_000,
            deadline=NOW + 1,
            owner=7,
        )
        for field in LeaseRun.__struct_fields__:
            assert getattr(full, field) != getattr(run(1), field), field
        await leases.grant(shard, 1, [full, run(1)])
        assert by_receipt(await leases.claim(shard, 1, NOW)) == by_receipt([full, run(1)])

    async def test_runs_of_several_subscriptions(self, leases: LeaseCache, shard: str) -> None:
        runs = [run(1, 5), run(1, 3, prefix="q"), run(8, 2), run(1, 1, prefix="", lane=0)]
        for one in runs:
            await leases.grant(shard, 1, [one])
        assert by_receipt(await leases.claim(shard, 1, NOW)) == by_receipt(runs)

    async def test_a_long_run(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [run(1, 10_000)])
        await leases.release(shard, 1, [("p", 2, 9_999)])
        assert await out(leases, shard) == [1, 10_000]

    async def test_granting_nothing(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [])
        await leases.release(shard, 1, [])
        await leases.remember(shard, 1, [], 1_000, NOW)
        assert await leases.claim(shard, 1, NOW) == []

    @pytest.mark.parametrize(
        ("n", "count"), [(3, 2), (1, 10), (1, 1), (10, 1), (1, 5), (6, 5), (0, 3), (9, 4), (0, 20)]
    )
    async def test_writing_a_number_again_replaces_it(
        self, leases: LeaseCache, shard: str, n: int, count: int
    ) -> None:
        old = run(1, 10)
        new = run(n, count, started=True, attempts=1, deadline=NOW + 2 * LEASE_MS)
        await leases.grant(shard, 1, [old])
        await leases.grant(shard, 1, [new])
        expected = by_receipt([old]) | by_receipt([new])
        assert by_receipt(await leases.claim(shard, 1, NOW)) == expected

    async def test_a_run_over_many_runs(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [run(n, 2, attempts=n) for n in (1, 4, 7, 10)])
        await leases.grant(shard, 1, [run(2, 7, started=True)])
        found = by_receipt(await leases.claim(shard, 1, NOW))
        started = [n for (_, n), one in sorted(found.items()) if one.started]
        assert started == [2, 3, 4, 5, 6, 7, 8]
        assert sorted(n for _, n in found) == [1, *started, 10, 11]

    async def test_the_last_of_one_call_wins(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [run(1, 3), run(2, 1, started=True), run(3, 1, attempts=2)])
        found = by_receipt(await leases.claim(shard, 1, NOW))
        assert [found["p", n].started for n in (1, 2, 3)] == [False, True, False]
        assert found["p", 3].attempts == 2

    # Releases

    @pytest.mark.parametrize(
        ("low", "high"), [(1, 10), (1, 3), (8, 10), (4, 6), (5, 5), (0, 2), (9, 99), (0, 1 << 53)]
    )
    async def test_a_release_keeps_the_rest(
        self, leases: LeaseCache, shard: str, low: int, high: int
    ) -> None:
        granted = run(1, 10)
        await leases.grant(shard, 1, [granted])
        await leases.release(shard, 1, [("p", low, high)])
        expected = {
            receipt: one
            for receipt, one in by_receipt([granted]).items()
            if not low <= receipt[1] <= high
        }
        assert by_receipt(await leases.claim(shard, 1, NOW)) == expected

    async def test_several_parts_in_one_call(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [run(1, 5), run(6, 5), run(1, 2, prefix="q")])
        parts = [("p", 4, 7), ("p", 1, 1), ("q", 1, 2)]
        await leases.release(shard, 1, parts)
        assert await out(leases, shard) == [2, 3, 8, 9, 10]

    async def test_unknown_receipts_are_ignored(self, leases: LeaseCache, shard: str) -> None:
        await leases.grant(shard, 1, [run(5, 2)])
        unknown = [("p", 1, 4), ("p", 7, 9), ("q", 5, 6)]
        await leases.release(shard, 1, [*unknown, *unknown])
        await leases.release(shard + "x", 1, [("p", 5, 6)])
        assert await out(leases, shard) == [5, 6]

    async def test_what_was_released_can_be_granted_again(
        self, leases: LeaseCache, shard: str
    ) -> None:
        for _ in range(2):
            await leases.grant(shard, 1, [run(1, 3)])
            await leases.release(shard, 1, [("p", 1, 3)])
            assert await out(leases, shard) == []

    # Deadlines

    async def test_runs_whose_deadline_passed_are_left_out(
        self, leases: LeaseCache, shard: str
    ) -> None:
        runs = [run(n, deadline=NOW + 1_000 * n) for n in range(1, 5)]
        await leases.grant(shard, 1, [*runs, run(9, prefix="q", deadline=NOW + 1_000)])
        assert await out(leases, shard, NOW + 999) == [1, 2, 3, 4, 9]
        assert await out(leases, shard, NOW + 2_500) == [3, 4]
        assert await out(leases, shard, NOW + 4_001) == []

    async def test_an_extended_lease_has_its_new_deadline(
        self, leases: LeaseCache, shard: str
    ) -> None:
        await leases.grant(shard, 1, [run(1, 3)])
        await leases.grant(shard, 1, [run(2, deadline=NOW + 10 * LEASE_MS)])
        assert await out(leases, shard, NOW + 2 * LEASE_MS) == [2]

    # Dedup ids

    async def test_ids_are_remembered_with_their_messages(
        self, leases: LeaseCache, shard: str
    ) -> None:
        marks = [("a", b"id-1"), ("ž ☹", b"id-2"), ("", b"id-3")]
        await leases.remember(shard, 1, marks, LEASE_MS, NOW)
        assert await leases.recall(shard, ["a", "b", "ž ☹", ""], NOW) == dict(marks)
        assert await leases.recall(shard, [], NOW) == {}
        assert await leases.recall(shard + "x", ["a"], NOW) == {}

    async def test_ids_are_forgotten_after_their_time(self, leases: LeaseCache, shard: str) -> None:
        await leases.remember(shard, 1, [("a", b"id-1"), ("b", b"id-2")], 10_000, NOW)
        await leases.remember(shard, 1, [("c", b"id-3"), ("b", b"id-2")], 20_000, NOW + 5_000)
        ids = ["a", "b", "c"]
        assert sorted(await leases.recall(shard, ids, NOW + 9_999)) == ["a", "b", "c"]
        assert sorted(await leases.recall(shard, ids, NOW + 10_001)) == ["b", "c"]
        assert sorted(await leases.recall(shard, ids, NOW + 25_001)) == []

    # Sessions

    async def test_a_session_is_kept_for_its_time(self, leases: LeaseCache, shard: str) -> None:
        assert await leases.get_session(shard, NOW) is None
        assert await leases.put_session(shard, 1, b"a\0b", 10_000, NOW)
        assert await leases.get_session(shard, NOW + 9_999) == KeptSession(1, b"a\0b")
        assert await leases.put_session(shard, 1, b"c", 10_000, NOW + 5_000)
        assert await leases.get_session(shard, NOW + 14_999) == KeptSession(1, b"c")
        assert await leases.get_session(shard, NOW + 15_000) is None
        assert await leases.get_session(shard + "x", NOW) is None

    async def test_who_took_over_a_session_shuts_out_the_former(
        self, leases: LeaseCache, shard: str
    ) -> None:
        await leases.put_session(shard, 1, b"old", 10_000, NOW)
        assert await leases.take_session(shard, 1, NOW)
        assert await leases.get_session(shard, NOW) == KeptSession(2, b"old")
        assert await leases.get_session(shard, NOW + 10_000) is None, "for no longer than before"
        assert not await leases.put_session(shard, 1, b"late", 10_000, NOW)
        await leases.drop_session(shard, 1)
        assert await leases.get_session(shard, NOW) == KeptSession(2, b"old")
        assert await leases.put_session(shard, 2, b"new", 10_000, NOW)
        assert await leases.get_session(shard, NOW) == KeptSession(2, b"new")

    async def test_a_session_is_taken_over_by_one_at_a_time(
        self, leases: LeaseCache, shard: str
    ) -> None:
        await leases.put_session(shard, 9, b"r", 10_000, NOW)
        took = [await leases.take_session(shard, 9, NOW) for _ in range(2)]
        assert took == [True, False]
        assert await leases.take_session(shard, 10, NOW)
        assert not await leases.take_session(shard, 11, NOW + 10_000), "its time is over"
        assert not await leases.take_session(shard + "x", 1, NOW)

    async def test_a_session_that_ended_is_forgotten(self, leases: LeaseCache, shard: str) -> None:
        await leases.put_session(shard, 2, b"r", 10_000, NOW)
        await leases.drop_session(shard, 2)
        await leases.drop_session(shard, 2)
        assert await leases.get_session(shard, NOW) is None
        assert await leases.put_session(shard, 1, b"again", 10_000, NOW)
