"""What sessions ask of shards that stopped and came back, and of queues that are open."""

from __future__ import annotations

from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.shard.sink import Attach
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import MemoryLeases
from tests.dispatcher.rig import TENANT, Consumer, Rig, blocked, rig


async def reopened(it: Rig) -> None:
    await it.runner.close(Stop.CLOSED)
    await it.reopen()


class Heir(Consumer):
    """A sink that takes a subscription over instead of making one."""

    def __init__(self, old: Consumer) -> None:
        self.acking = False
        self.runs, self.again, self.lost_receipts, self.end = [], [], [], None
        self.runner, self.sub = old.runner, old.sub
        self._news = old._news


async def test_a_subscription_that_the_cache_remembered_goes_on() -> None:
    async with rig(leases=MemoryLeases()) as it:
        old = it.consumer(2, lease_ms=5_000)
        await it.publish(b"1", b"2", b"3")
        await old.got(2)
        await reopened(it)
        heir, prefix = Heir(old), old.sub.prefix
        held = [(prefix, 1, 1), (prefix, 7, 8), ("foreign", 1, 1)]
        wish = Attach("s", 3, lease_ms=9_000, prefix=prefix, held=held)
        lost, subscription = heir.attach(wish, it.runner), heir.sub
        assert subscription.prefix == prefix
        assert sorted(lost) == sorted([(prefix, 7, 8), ("foreign", 1, 1)])
        assert (subscription.credit, subscription.lease_ms) == (3, 9_000)
        await blocked()
        assert heir.again == []
        assert sorted(heir.bodies) == [b"2", b"3"], "one had not come, so it is granted anew"
        assert sorted(subscription.held)[0] == 1
        assert len(subscription.held) == 3


async def test_nobody_else_s_subscription_is_adopted() -> None:
    async with rig(leases=MemoryLeases()) as it:
        other = it.consumer()
        sink = Heir(other)
        for prefix in (other.sub.prefix, "unknown"):
            held = [(prefix, 1, 1)]
            assert sink.attach(Attach("t", 1, prefix=prefix, held=held), it.runner) == held
            assert sink.sub.prefix != prefix
        assert other.sub.token is other


async def test_a_session_takes_over_what_it_has_where_its_old_way_is_not_known_to_be_lost() -> None:
    async with rig(leases=MemoryLeases()) as it:
        old = it.consumer(explicit=True)
        await it.publish(b"1", b"2")
        await old.got(2)
        prefix, generation = old.sub.prefix, old.sub.generation
        new = Heir(old)
        held = [(prefix, 1, 1)]
        assert new.attach(Attach("s", 5, explicit=True, prefix=prefix, held=held), it.runner) == []
        assert new.sub is old.sub
        assert new.sub.token is new
        await new.until(lambda: [run.n for run in new.runs] == [3])
        assert old.settle(ACK, held, generation=generation).lost == held, "it has no say any more"
        assert (await new.ack(new.runs[0])).lost == []


async def test_without_a_cache_there_is_nothing_to_adopt() -> None:
    async with rig() as it:
        old = it.consumer()
        await it.publish(b"1")
        await old.got(1)
        await reopened(it)
        prefix = old.sub.prefix
        held = [(prefix, 1, 1)]
        assert Heir(old).attach(Attach("s", 1, prefix=prefix, held=held), it.runner) == held


async def test_opened_is_what_open_would_answer_without_waiting() -> None:
    async with rig() as it:
        assert it.dispatcher.opened(TENANT, "q") is None, "nobody has said for whom it counts"
        await it.dispatcher.open(TENANT, "q", claims=())
        assert it.dispatcher.opened(TENANT, "q") is it.queue
        assert it.dispatcher.opened(TENANT, "other") is None
        await it.runner.close(Stop.CLOSED)
        assert it.dispatcher.opened(TENANT, "q") is None
        await it.reopen()
        await it.dispatcher.open(TENANT, "q", claims=())
        assert it.dispatcher.opened(TENANT, "q") is it.queue
