"""Start, ack, nack and extend: receipts that count, and those that don't."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Done,
    Extend,
    LeaseLostFrame,
    Nack,
    Start,
)
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import Gate, ScriptedStore, fail
from tests.gateway.session.rig import TENANT, Client, blocked, rig

Make = Callable[[int, list[str], int | None], ClientFrame]
"""A frame of a sub and receipts, with an id or without."""


async def leased(client: Client, count: int = 1, **options: object) -> tuple[int, list[str]]:
    """A sub, and the receipts of so many messages on it."""
    sub = await client.subscribe("q", **options)  # type: ignore[arg-type]
    await client.publish("q", *[b"1"] * count)
    return sub, [found.receipt or "" for found in await client.deliveries(count)]


def run_of(receipts: list[str]) -> str:
    return f"{receipts[0]}-{receipts[-1].rpartition('.')[2]}"


async def test_an_ack_is_answered_when_it_is_durable() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store) as it:
        client = await it.client()
        sub, receipts = await leased(client)
        store.script.add("settle", gate)
        client.say(Ack(sub, receipts, 50))
        await blocked()
        assert client.socket.unread == []
        gate.released.set()
        assert await client.socket.hear() == Done(50)


async def test_a_run_and_single_receipts_in_one_frame() -> None:
    async with rig() as it:
        client = await it.client()
        sub, receipts = await leased(client, 64)
        client.say(Ack(sub, [receipts[-1], run_of(receipts[:-1])], 50))
        assert await client.socket.hear() == Done(50)
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 64
        assert it.metrics.settled.counts == {"ack": 64}


async def test_acks_without_an_id_are_silent() -> None:
    async with rig() as it:
        client = await it.client()
        sub, receipts = await leased(client, 3)
        client.say(Ack(sub, receipts))
        await client.silence()
        client.say(Ack(sub, receipts))
        await client.silence()
        await client.ack(sub, run_of(receipts))  # answered when the others are durable, too
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 3


async def test_a_repeated_ack_is_a_duplicate() -> None:
    async with rig() as it:
        client = await it.client()
        sub, receipts = await leased(client, 3)
        await client.ack(sub, receipts[1])
        done = await client.ack(sub, run_of(receipts))
        assert (done.lease_lost, done.duplicate) == ([], [receipts[1]])
        assert (await client.ack(sub, run_of(receipts))).duplicate == [run_of(receipts)]


@pytest.mark.parametrize(
    "make",
    [
        lambda sub, receipts, id: Start(sub, receipts, id),
        lambda sub, receipts, id: Ack(sub, receipts, id),
        lambda sub, receipts, id: Nack(sub, receipts, id=id),
        lambda sub, receipts, id: Extend(sub, receipts, 5_000, id),
    ],
    ids=["start", "ack", "nack", "extend"],
)
class TestReceiptsThatDontCount:
    async def test_forged(self, make: Make) -> None:
        async with rig() as it:
            client = await it.client()
            sub, receipts = await leased(client)
            prefix = receipts[0].rpartition(".")[0]
            forged = ["0123456789abcdef.1-9", f"{prefix}.2", f"{prefix}.9000-9999"]
            client.say(make(sub, forged, 50))
            done = await client.socket.hear_a(Done)
            assert sorted(done.lease_lost) == sorted(
                ["0123456789abcdef.1-9", f"{prefix}.2", f"{prefix}.9000-9999"]
            )
            client.say(make(sub, forged[:1], None))
            assert await client.socket.hear() == LeaseLostFrame(sub, forged[:1])
            assert (await client.ack(sub, *receipts)).lease_lost == []

    async def test_of_another_session(self, make: Make) -> None:
        async with rig() as it:
            client, thief = await it.client(), await it.client()
            sub, receipts = await leased(client)
            own = await thief.subscribe("q")
            thief.say(make(own, receipts, 50))
            assert await thief.socket.hear() == Done(50, lease_lost=receipts)
            assert (await client.ack(sub, *receipts)).lease_lost == []

    async def test_of_another_sub_of_the_same_session(self, make: Make) -> None:
        async with rig() as it:
            client = await it.client()
            sub, receipts = await leased(client)
            other = await client.subscribe("q")
            client.say(make(other, receipts, 50))
            assert await client.socket.hear() == Done(50, lease_lost=receipts)
            assert (await client.ack(sub, *receipts)).lease_lost == []

    async def test_stale(self, make: Make) -> None:
        async with rig() as it:
            client = await it.client()
            sub, receipts = await leased(client, lease_ms=1_000)
            await client.socket.hear_a(LeaseLostFrame)
            (again,) = await client.deliver()
            client.say(make(sub, receipts, 50))
            assert await client.socket.hear() == Done(50, lease_lost=receipts)
            assert (await client.ack(sub, again.receipt or "")).lease_lost == []

    async def test_no_receipts_at_all(self, make: Make) -> None:
        async with rig() as it:
            client = await it.client()
            sub, receipts = await leased(client)
            for bad in ([], ["x"], [""], ["p.0"], ["p.5-4"], ["p.1-20000"], ["x" * 129]):
                client.say(make(sub, bad, 50))
                error = await client.error()
                assert (error.code, error.id) == ("bad_request", 50)
                client.say(make(sub, bad, None))
                error = await client.error()
                assert (error.code, error.sub) == ("bad_request", sub)
            assert (await client.ack(sub, *receipts)).lease_lost == []

    async def test_a_sub_that_never_was(self, make: Make) -> None:
        async with rig() as it:
            client = await it.client()
            _, receipts = await leased(client)
            client.say(make(77, receipts, 50))
            error = await client.error()
            assert (error.code, error.id, error.message) == (
                "bad_request",
                50,
                "there is no sub 77",
            )


async def test_more_receipts_than_one_frame_may_cover() -> None:
    async with rig() as it:
        client = await it.client()
        sub, _ = await leased(client)
        client.say(Ack(sub, ["p.1-10000", "p.10001"], 50))
        assert (await client.error()).message == "receipts covers more than 10000"


async def test_nack_with_and_without_a_delay() -> None:
    async with rig() as it:
        client = await it.client()
        sub, (receipt,) = await leased(client)
        client.say(Nack(sub, [receipt], 7_000, "later", id=50))
        assert await client.socket.hear() == Done(50)
        (again,) = await client.deliver()
        assert trio.current_time() == pytest.approx(7)
        assert again.attempt == 2
        client.say(Nack(sub, [again.receipt or ""]))
        (third,) = await client.deliver()
        assert third.attempt == 3
        assert trio.current_time() > 7.1


@pytest.mark.parametrize(
    "frame",
    [
        Nack(1, ["p.1"], 5, dead=True, id=50),
        Nack(1, ["p.1"], 2**50, id=50),
        Nack(1, ["p.1"], error="x" * 1_025, id=50),
        Extend(1, ["p.1"], 999, 50),
        Extend(1, ["p.1"], 10**9, 50),
    ],
)
async def test_values_outside_their_limits(frame: ClientFrame) -> None:
    async with rig() as it:
        client = await it.client()
        await client.subscribe("q")
        client.say(frame)
        error = await client.error()
        assert (error.code, error.id) == ("bad_request", 50)


async def test_extend_moves_the_end_of_the_lease() -> None:
    async with rig() as it:
        client = await it.client()
        sub, receipts = await leased(client, lease_ms=2_000)
        await trio.sleep(1.5)
        client.say(Extend(sub, receipts, 3_000, 50))
        assert await client.socket.hear() == Done(50)
        await client.socket.hear_a(LeaseLostFrame)
        assert trio.current_time() == pytest.approx(4.5)


async def test_a_store_that_never_decides() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(decide_ms=1_000)) as it:
        client = await it.client()
        sub, receipts = await leased(client)
        store.script.always["settle"] = fail(StoreUnknown("?"))
        client.say(Ack(sub, receipts, 50))
        error = await client.error()
        assert (error.code, error.id, error.request) == ("unavailable", 50, "ack")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("id", [None, 50])
async def test_a_delay_longer_than_the_retention_is_refused(id: int | None, shards: int) -> None:
    async with rig() as it:
        await it.queue("q", retention_ms=60_000, shards=shards)
        client = await it.client()
        late = await client.publish("q", b"1", delay_ms=60_001)
        assert [(one.code, "retention_ms" in one.message) for one in late.failed] == [
            ("bad_request", True)
        ]
        sub, receipts = await leased(client, 6)
        client.say(Nack(sub, receipts, delay_ms=60_001, id=id))
        error = await client.error()
        assert (error.id, error.code, "retention_ms" in error.message) == (id, "bad_request", True)
        assert it.limit("retention_ms") == 2
        assert (await it.dispatcher.stats(TENANT, "q")).leased == 6, "nothing changed"
        assert (await client.ack(sub, *receipts)).lease_lost == []
