"""Callers can't tell how far away a shard's owner is: every answer may come later."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import ACK
from tests.dispatcher.far import FarQueue
from tests.dispatcher.rig import TENANT, Rig, blocked, message, rig
from tests.dispatcher.subscriber import Subscriber
from tests.running import runners_of, stats_now


class Far:
    """A subscriber to a queue whose shards are far away."""

    def __init__(self, r: Rig, rng: Random, credit: int) -> None:
        self.queue = FarQueue(r.queue)
        self.it = Subscriber()
        self._rng = rng
        queue: Any = self.queue
        spec = Spec(TENANT, "q", "s", credit=credit)
        feed = Feed(r.dispatcher, queue.row.id, len(queue.shards), spec, self.it, ())
        feed.attach(queue.shards, self.it.subscribed)

    @property
    def feed(self) -> Feed:
        return self.it.feed

    async def step(self) -> bool:
        """Something arrives. False: nothing is on its way."""
        ways = self.queue.ways
        if ways:
            self._rng.choice(ways).popleft()()
            await blocked()
        return bool(ways)

    async def settled(self) -> None:
        """Until nothing is on its way."""
        while await self.step():
            pass


@pytest.mark.parametrize("seed", range(12))
async def test_a_credit_that_far_shards_share_is_never_exceeded(seed: int) -> None:
    rng, total = Random(seed), 60
    credit = rng.choice([1, 2, 3, 7])
    async with rig(shards=3) as r:
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(total)])
        far = Far(r, rng, credit)
        await far.settled()
        answers: list[Gather] = []
        acked = 0
        while acked < total:
            if far.it.receipts and rng.random() < 0.4:
                receipt = far.it.receipts.pop(rng.randrange(len(far.it.receipts)))
                far.feed.settle(ACK, [receipt], answers.append, silently=rng.random() < 0.5)
                acked += 1
            elif not await far.step():
                assert far.it.receipts or acked == total, "nobody is hungry for ever"
            assert len(far.it.receipts) <= credit
        await far.settled()
        assert far.feed.held == 0
        assert [answer for answer in answers if answer.lost or answer.error] == []
        assert stats_now(r.queue).acked == total


async def test_others_get_more_only_when_a_lowered_credit_is_confirmed() -> None:
    async with rig(shards=2) as r:
        far = Far(r, Random(1), 8)
        await far.settled()
        first, second = far.feed._parts
        await runners_of(r.queue)[0].publish([message()] * 4)
        await blocked()  # granted there, and not yet known here
        far.feed.part_hungry(second, True)
        first.set_credit(1)
        far.feed._rebalance()
        assert (first.most, second.credit) == (4, 4)
        await far.settled()
        assert (first.held, first.most, second.credit) == (4, 6, 2)


async def test_a_resume_takes_up_what_is_held() -> None:
    async with rig(shards=2) as r:
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(6)])
        far = Far(r, Random(1), 6)
        await far.settled()
        listed = far.it.receipts[:4]
        far.feed.detach(30_000)
        lost: list[list[ReceiptRun]] = []
        far.feed.resume([*listed, ("p", 1, 1)], (), lost.append)
        assert lost == []
        await far.settled()
        assert lost == [[("p", 1, 1)]]
        assert sorted(far.it.again) == sorted(far.it.receipts[4:])
        assert far.feed.held == 6
        far.feed.end()
        await far.settled()
        assert stats_now(r.queue).subscriptions == 0
        assert stats_now(r.queue).ready == 6
