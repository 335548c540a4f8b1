"""Loose receipts: those that somebody brings who holds no subscription for them."""

from __future__ import annotations

import pytest

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.loose import Ports, settle_loose
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.shard import runner as shard_runner
from tests.dispatcher.rig import blocked, message, rig
from tests.dispatcher.subscriber import settle, subscribe
from tests.running import runners_of


def at_once(shards: Ports, *receipts: ReceiptRun) -> Gather:
    told: list[Gather] = []
    gather = Gather(1, told.append)
    settle_loose(shards, ACK, list(receipts), gather, silently=True)
    gather.one_less()
    assert told == [gather]
    return gather


@pytest.mark.parametrize("older", [False, True])
async def test_each_shard_settles_its_own(older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if older:  # they don't say which shard they are from
        monkeypatch.setattr(shard_runner, "mark_prefix", lambda secret, _: secret)
    async with rig(shards=3) as r:
        it = await subscribe(r.dispatcher, session="http:me", credit=30)
        for runner in runners_of(r.queue):
            await runner.publish([message()] * 3)
        await blocked()
        assert len(it.receipts) == 9
        assert len({receipt[0] for receipt in it.receipts}) == 3
        assert all("~" in receipt[0] for receipt in it.receipts) is not older
        assert (await settle(r.dispatcher, ACK, *it.receipts)).lost == []
        it.feed.unsubscribe()
        again = await settle(r.dispatcher, ACK, *it.receipts)
        assert (len(again.lost), sum(high - low + 1 for _, low, high in again.duplicate)) == (0, 9)


async def test_what_nobody_knows_is_lost() -> None:
    async with rig(shards=2) as r:
        receipts = [("nobody", 1, 2), ("nobody~7", 1, 1), ("nobody~1", 4, 5)]
        assert sorted(at_once(runners_of(r.queue), *receipts).lost) == sorted(receipts)


async def test_of_a_shard_that_is_down() -> None:
    async with rig(shards=2) as r:
        gone = runners_of(r.queue)[1]
        await gone.close()
        receipts = [("p~0", 1, 1), ("p~1", 1, 1)]
        assert sorted(at_once([runners_of(r.queue)[0], None], *receipts).lost) == receipts
        found = at_once([runners_of(r.queue)[0], gone], *receipts)
        assert found.lost == receipts[:1]
        assert found.error is not None
        assert found.error.code == "unavailable"


async def test_nothing_is_done_with_a_delay_that_is_too_long() -> None:
    async with rig(retention_ms=60_000) as r:
        it = await subscribe(r.dispatcher, session="http:me")
        await r.publish(b"1")
        await blocked()
        found = await settle(r.dispatcher, Act("nack", delay_ms=60_001), *it.receipts)
        assert found.error is not None
        assert found.error.code == "bad_request"
        assert r.runner.stats().leased == 1
