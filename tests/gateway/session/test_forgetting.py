"""A session forgets a sub that is closed once nothing is held by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_gateway.session.session import Session, Sub
from pushlane_gateway.session.timers import Timers
from tests.dispatcher.rig import TENANT, Call, ScriptedLeases, message, rig
from tests.running import runners_of


async def slow(call: Call) -> Any:
    await trio.sleep(0.1)
    return await call()


async def test_what_is_on_its_way_at_an_unsubscribe_is_held() -> None:
    """The lease cache is being told of it: nobody here knows yet that it is held."""
    leases = ScriptedLeases()
    async with rig(leases=leases, shards=2) as r, trio.open_nursery() as nursery:
        timers = Timers()
        nursery.start_soon(timers.run)
        context: Any = SimpleNamespace(limits=SimpleNamespace(resume_ms=30_000), timers=timers)
        identity: Any = None
        session = Session("id", identity, context)
        sub = Sub(session, "q")

        def subscribed(feed: Feed | None, _: Exception | None) -> None:
            assert feed is not None
            session.subscribed(sub, feed)

        spec = Spec(TENANT, "q", "s", credit=6, lease_ms=600_000)
        feed = Feed(r.dispatcher, r.queue.row.id, len(r.queue.shards), spec, sub, ())
        feed.attach(r.queue.shards, subscribed)
        await trio.sleep(0.01)
        leases.script.add("grant", slow)
        await runners_of(r.queue)[1].publish([message(b"1"), message(b"2")])
        await trio.sleep(0.05)
        assert sub.feed.held == 0
        sub.feed.unsubscribe()
        await trio.sleep(40)
        assert sub.feed.held == 2
        assert session.subs == {1: sub}
        sub.feed.end()
        nursery.cancel_scope.cancel()
