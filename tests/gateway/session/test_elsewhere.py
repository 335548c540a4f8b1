"""Sessions that go on at another gateway of the cluster, be the first one alive, dead or away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trio
from msgspec import structs

from pushlane.wire.frames import (
    Ack,
    Credit,
    Deliver,
    Done,
    Ended,
    ErrorFrame,
    Hello,
    Publish,
    Published,
    Resume,
    Unsubscribe,
)
from pushlane.wire.limits import Limits
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.sessions import Sessions
from pushlane_gateway.session.settings import SessionSettings
from pushlane_gateway.session.timers import Timers
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.cluster.world import Node, World, cluster
from tests.gateway.session.rig import TENANT, Client, Rig, anybody, known, message
from tests.gateway.session.test_resume import ANN, OTHERS

HOUR = 3_600_000
LIMITS = Limits(resume_ms=60_000)
SHARDS = 4


class Gateways:
    """One on each node of a cluster, called as it is."""

    def __init__(self, world: World, nursery: trio.Nursery, options: dict[str, Any]) -> None:
        self.world = world
        self._nursery = nursery
        self._options = options
        self._rigs: dict[str, tuple[Rig, trio.Nursery]] = {}

    async def open(self, node: Node) -> None:
        await self._nursery.start(self._run, node)

    async def _run(
        self, node: Node, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        options = dict(self._options)
        async with trio.open_nursery() as nursery:
            context = SessionContext(
                node.dispatcher,
                options.pop("authenticate", anybody),
                nursery,
                LIMITS,
                SessionSettings(**options),
                metrics=Metrics(),
                timers=Timers(),
                chance=lambda: 0.5,
                node=node.name,
            )
            nursery.start_soon(context.timers.run)
            rig = Rig(node.dispatcher, Sessions(context), nursery)
            self._rigs[node.name] = rig, nursery
            task_status.started()
            await trio.sleep_forever()

    def __getitem__(self, name: str) -> Rig:
        return self._rigs[name][0]

    def node(self, name: str) -> Node:
        return next(node for node in self.world.nodes if node.name == name)

    def kill(self, name: str) -> None:
        """A node with its gateway."""
        self.world.kill(self.node(name))
        self._rigs[name][1].cancel_scope.cancel()


@asynccontextmanager
async def gateways(count: int = 3, shards: int = SHARDS, **options: Any) -> AsyncIterator[Gateways]:
    async with cluster(count, bounds=Bounds()) as world, trio.open_nursery() as nursery:
        found = Gateways(world, nursery, options)
        for node in list(world.nodes):
            await found.open(node)
        await world.nodes[0].dispatcher.create(TENANT, "q", QueueConfig(shards=shards))
        yield found
        nursery.cancel_scope.cancel()


async def consumer(it: Gateways, name: str, count: int = 8, **hello: Any) -> Consumer:
    """A client of a node with so many messages of sub 1."""
    client = it[name].connect()
    session = (await client.hello(**hello)).session
    await client.subscribe("q", credit=100, lease_ms=HOUR)
    await publish(it[name], count, **hello)
    await client.deliveries(count)
    await trio.sleep(1)  # by now it is written down
    return Consumer(client, session, receipts_of(client))


async def publish(it: Rig, count: int, **hello: Any) -> None:
    client = await it.client(**hello)
    for n in range(count):
        await client.publish("q", b"%d" % n, key=f"k{n}")
    await client.leave()


class Consumer:
    def __init__(self, client: Client, session: str, receipts: list[str]) -> None:
        self.client = client
        self.session = session
        self.receipts = receipts


def receipts_of(client: Client) -> list[str]:
    """Of all that was ever delivered to it."""
    frames = [client.socket.codec.decode_server(frame) for frame in client.socket.sent]
    return [
        found.receipt or ""
        for frame in frames
        if isinstance(frame, Deliver)
        for found in frame.messages
    ]


async def goes_on(it: Gateways, name: str, old: Consumer, held: list[str]) -> Client:
    """It resumes there, and what it holds is its own."""
    again = it[name].connect()
    welcome = await again.resume(old.session, {"1": held})
    assert (welcome.resumed, welcome.session, welcome.node) == (True, old.session, name)
    assert not welcome.lost
    return again


async def is_drained(it: Gateways, name: str) -> None:
    async def stored() -> int:
        return (await it[name].dispatcher.stats(TENANT, "q")).stored

    with trio.fail_after(60):
        while await stored():  # noqa: ASYNC110
            await trio.sleep(0.1)


@pytest.mark.parametrize("shards", [1, SHARDS])
@pytest.mark.parametrize("dropped", [True, False])
async def test_it_goes_on_where_its_client_comes_next(
    autojump_clock: object, dropped: bool, shards: int
) -> None:
    async with gateways(shards=shards) as it:
        old = await consumer(it, "a")
        if dropped:
            await old.client.drop()
        again = await goes_on(it, "b", old, old.receipts[:5])
        if not dropped:
            assert await old.client.socket.until_closed() == (4001, "taken_over")
        found = await again.deliveries(3)
        new = [one.receipt or "" for one in found]
        assert set(new).isdisjoint(old.receipts), "what had not come is granted anew"
        assert {one.attempt for one in found} == {1}
        assert len(it["a"].sessions) == 0
        assert await again.ack(1, *old.receipts[:5], *new) == Done(1)
        assert (await again.ack(1, old.receipts[0])).duplicate == [old.receipts[0]]
        await again.publish("q", b"9")
        assert len(await again.deliver()) == 1
        assert await again.subscribe("q") == 2


async def test_when_its_gateway_is_killed_nothing_that_it_holds_is_sent_again(
    autojump_clock: object,
) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        it.kill("a")
        again = await goes_on(it, "c", old, old.receipts)
        await trio.sleep(15)  # by now its shards are others' if they were there
        done = await acked(again, old.receipts)
        assert done.lease_lost == []
        assert receipts_of(again) == []
        await is_drained(it, "b")


async def acked(client: Client, receipts: list[str]) -> Done:
    """Once the server can say, as a client does it."""
    while True:
        client.say(Ack(1, receipts, client.next_id()))
        answer = await client.socket.hear()
        if isinstance(answer, Done):
            return answer
        assert isinstance(answer, ErrorFrame)
        assert answer.code == "unavailable"
        await trio.sleep(0.5)


async def test_a_gateway_that_can_t_be_reached_has_no_say_any_more(autojump_clock: object) -> None:
    """It is alive, owns nothing, and its client's old connection still stands."""
    async with gateways() as it:
        old = await consumer(it, "a")
        a, others = it.node("a"), [it.node("b"), it.node("c")]
        it.world.air.cut(a.address, others[0].address)
        it.world.air.cut(a.address, others[1].address)
        again = await goes_on(it, "b", old, old.receipts)
        await again.silence()
        for other in others:
            it.world.air.join(a.address, other.address)
        await it.world.linked()
        await trio.sleep(10)  # it has found its shards again, if they would have it
        assert await old.client.socket.until_closed() == (4001, "taken_over")
        assert len(it["a"].sessions) == 0
        done = await acked(again, old.receipts)
        assert done.lease_lost == []


async def test_frames_of_the_old_gateway_are_refused(autojump_clock: object) -> None:
    """It doesn't know yet: nobody could ask it to yield, and it has written nothing since."""
    async with gateways() as it:
        old = await consumer(it, "a")
        it.node("a").cluster.yield_session = lambda _session, _term: None
        again = await goes_on(it, "b", old, old.receipts)
        lost = await old.client.ack(1, *old.receipts)
        assert lost.lease_lost
        assert await again.ack(1, *old.receipts) == Done(1)


async def test_it_may_go_back_and_forth(autojump_clock: object) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        client, receipts = old.client, list(old.receipts)
        for n, name in enumerate("bcabca"):
            if n % 2:
                await client.drop()
            client = await goes_on(it, name, old, receipts)
            sub = await client.subscribe("q", credit=1)
            assert sub == n + 2
            await trio.sleep(1)
        assert (await client.ack(1, *receipts)).lease_lost == []
        assert [len(it[name].sessions) for name in "abc"] == [1, 0, 0]


async def test_who_comes_back_to_a_gateway_that_was_left_out_gets_what_it_had_last(
    autojump_clock: object,
) -> None:
    """The first gateway still has the session: nobody told it."""
    async with gateways() as it:
        old = await consumer(it, "a")
        it.node("a").cluster.yield_session = lambda _session, _term: None
        away = await goes_on(it, "b", old, old.receipts)
        assert await away.subscribe("q", credit=1) == 2
        await trio.sleep(1)
        again = await goes_on(it, "a", old, old.receipts)
        assert await again.subscribe("q", credit=1) == 3
        assert (await again.ack(1, *old.receipts)).lease_lost == []
        assert await away.socket.until_closed() == (4001, "taken_over")


@pytest.mark.parametrize("other", OTHERS)
async def test_a_stolen_id_is_worth_nothing(autojump_clock: object, other: str) -> None:
    identities = known(ann=ANN, thief=OTHERS[other])
    async with gateways(authenticate=identities) as it:
        old = await consumer(it, "a", token="ann")
        thief = it["b"].connect()
        welcome = await thief.hello(token="thief", resume=Resume(old.session, {"1": old.receipts}))
        assert not welcome.resumed
        assert welcome.lost == {}
        await trio.sleep(1)
        assert (await old.client.ack(1, *old.receipts)).lease_lost == []
        again = it["c"].connect()
        assert (await again.hello(token="ann", resume=Resume(old.session))).resumed


async def test_a_closed_sub_may_settle_elsewhere(autojump_clock: object) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        old.client.say(Unsubscribe(50, 1))
        await old.client.socket.hear_a(Done)
        await trio.sleep(1)
        again = await goes_on(it, "b", old, old.receipts)
        await publish(it["c"], 3)
        await again.silence(1)
        assert (await again.ack(1, *old.receipts)).lease_lost == []


@pytest.mark.parametrize("killed", [True, False])
async def test_a_queue_that_was_deleted_meanwhile(autojump_clock: object, killed: bool) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        if killed:
            it.kill("a")
            await trio.sleep(15)
        else:
            await old.client.drop()
        await it["b"].dispatcher.delete(TENANT, "q")
        await trio.sleep(1)
        again = it["b"].connect()
        welcome = await again.resume(old.session, {"1": old.receipts})
        assert welcome.resumed
        assert welcome.lost.keys() == {"1"}
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (1, "not_found")


async def test_a_right_that_was_withdrawn_meanwhile(autojump_clock: object) -> None:
    tokens = {"ann": ANN, "less": structs.replace(ANN, rules=())}
    async with gateways(authenticate=known(**tokens)) as it:
        old = await consumer(it, "a", token="ann")
        again = it["b"].connect()
        welcome = await again.hello(token="less", resume=Resume(old.session, {"1": old.receipts}))
        assert welcome.resumed
        assert set(welcome.lost) == {"1"}
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (1, "forbidden")


async def test_frames_behind_the_hello_wait_for_the_welcome(autojump_clock: object) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        again = it["b"].connect()
        again.say(
            Hello(resume=Resume(old.session, {"1": old.receipts})),
            Ack(1, old.receipts, 7),
            Publish(8, "q", [message(b"1")]),
        )
        assert (await again.socket.hear()).resumed  # type: ignore[union-attr]
        while (frame := await again.socket.hear()) != Done(7):
            assert isinstance(frame, Published | Deliver), frame


async def test_who_is_back_where_nobody_could_ask_comes_again(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gateway still has the session, doesn't know of the other one, and the cache is
    away when its client comes back: that one is not told that somebody else took its session."""
    async with gateways() as it:
        old = await consumer(it, "a")
        it.node("a").cluster.yield_session = lambda _session, _term: None
        away = await goes_on(it, "b", old, old.receipts)
        assert await away.subscribe("q", credit=1) == 2
        await trio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr(it["a"].sessions._shared, "get", AsyncMock(return_value=None))
            back = it["a"].connect()
            assert (await back.resume(old.session, {"1": old.receipts})).resumed
        back.say(Credit(1, 50))
        assert await back.socket.until_closed() == (4001, "unavailable")
        again = await goes_on(it, "a", old, old.receipts)
        assert await again.subscribe("q", credit=1) == 3, "it is the session that was at the other"
        assert (await again.ack(1, *old.receipts)).lease_lost == []


async def test_once_the_cache_has_it_a_session_is_sure(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        with monkeypatch.context() as patch:
            patch.setattr(it["a"].sessions._shared, "get", AsyncMock(return_value=None))
            back = await goes_on(it, "a", old, old.receipts)
        back.say(Credit(1, 50))
        await trio.sleep(1)
        await goes_on(it, "b", old, old.receipts)
        assert await back.socket.until_closed() == (4001, "taken_over")


async def test_a_session_that_ended_is_nowhere(autojump_clock: object) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        await old.client.leave()
        await trio.sleep(1)
        assert not (await it["b"].connect().resume(old.session)).resumed


async def test_without_the_cache_it_is_not_resumed_and_nothing_worse(
    autojump_clock: object,
) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        it.world.leases._sessions._until.clear()
        it.world.leases._sessions._values.clear()
        again = it["b"].connect()
        assert not (await again.resume(old.session, {"1": old.receipts})).resumed
        assert (await old.client.ack(1, *old.receipts)).lease_lost == []


async def test_what_is_written_is_written_again_before_it_runs_out(autojump_clock: object) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        await trio.sleep(1_000)
        await goes_on(it, "b", old, old.receipts)


async def test_what_was_not_written_yet_the_old_gateway_says(autojump_clock: object) -> None:
    async with gateways(record_pause_ms=HOUR) as it:
        old = await consumer(it, "a")
        assert await old.client.subscribe("q", credit=1) == 2
        again = await goes_on(it, "b", old, old.receipts)
        assert await again.subscribe("q") == 3
        (session,) = it["b"].sessions._sessions.values()
        assert set(session.subs) == {1, 2, 3}


async def test_a_sub_that_was_never_written_down_is_told(autojump_clock: object) -> None:
    async with gateways(record_pause_ms=HOUR) as it:
        old = await consumer(it, "a")
        assert await old.client.subscribe("q", credit=1) == 2
        it.kill("a")
        again = it["b"].connect()
        held = {"1": old.receipts, "2": []}
        assert (await again.resume(old.session, held)).resumed
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (2, "unavailable")
        assert await again.subscribe("q") == 3


@pytest.mark.parametrize("first", ["b", "c"])
async def test_two_at_once_and_one_of_them_counts(autojump_clock: object, first: str) -> None:
    async with gateways() as it:
        old = await consumer(it, "a")
        names = [first, *{"b", "c"} - {first}]
        clients = [it[name].connect() for name in names]
        for client in clients:
            client.say(Hello(resume=Resume(old.session, {"1": old.receipts})))
        await trio.sleep(10)
        assert sum(len(it[name].sessions) for name in "abc") <= 2, "a new one for who lost"
        open_ones = [client for client in clients if client.socket.closed is None]
        settled = 0
        for client in open_ones:
            client.socket._read = len(client.socket.sent)
            client.say(Ack(1, old.receipts, 99))
            answer = await client.socket.hear()
            settled += isinstance(answer, Done) and not answer.lease_lost
        assert settled == 1


@pytest.mark.parametrize("names", ["aaaa", "bcbc"])
async def test_nothing_is_sent_before_the_welcome(autojump_clock: object, names: str) -> None:
    """Shards far away answer one after the other, and send what was not listed."""
    async with gateways() as it:
        old = await consumer(it, "a", 32)
        client = old.client
        it.world.air.most_delay = 0.3
        for name in names:
            await client.drop()
            client = await goes_on(it, name, old, [])
            found = await client.deliveries(32)
            assert len({one.id for one in found}) == 32


async def test_a_shard_that_is_slow_holds_the_welcome_up_for_a_while_only(
    autojump_clock: object,
) -> None:
    """What is not known by then is told later."""
    async with gateways(takeover_ms=500) as it:
        old = await consumer(it, "a", 32)
        await old.client.drop()
        it.world.air.most_delay = 4.0
        began = trio.current_time()
        again = await goes_on(it, "a", old, [*old.receipts, "foreign.1"][:32])
        assert trio.current_time() - began < 1
        it.world.air.most_delay = 0.0
        assert (await acked(again, old.receipts)).lease_lost == []


@pytest.mark.parametrize("name", "ab")
async def test_a_welcome_that_waits_no_longer_tells_what_is_known_to_be_lost(
    autojump_clock: object, name: str
) -> None:
    """What comes in its place comes right behind, and would be more than the credit."""
    async with gateways(takeover_ms=500) as it:
        old = await consumer(it, "a", 32)
        await old.client.drop()
        again = it[name].connect()
        it.world.air.most_delay = 4.0
        welcome = await again.resume(old.session, {"1": [*old.receipts, "foreign.1"]})
        it.world.air.most_delay = 0.0
        assert welcome.lost == {"1": ["foreign.1"]}


async def test_a_server_that_stops_leaves_its_sessions_to_the_others(
    autojump_clock: object,
) -> None:
    async with gateways(drain_ms=500, close_ms=100) as it:
        old = await consumer(it, "a")
        await it["a"].sessions.drain()
        assert (await old.client.socket.until_closed())[0] == 1001
        assert len(it["a"].sessions) == 0
        again = await goes_on(it, "b", old, old.receipts[:4])
        found = await again.deliveries(4)
        assert {one.attempt for one in found} == {1}
        new = [one.receipt or "" for one in found]
        assert (await again.ack(1, *old.receipts[:4], *new)).lease_lost == []


async def test_a_paused_gateway_holds_nobody_up(autojump_clock: object) -> None:
    """It answers nothing, and its links still stand."""
    async with gateways() as it:
        old = await consumer(it, "a")
        a, b = it.node("a"), it.node("b")
        asker = b.cluster.peers.asker(a.process)
        assert asker is not None

        async def nothing(session: str, term: int) -> bytes | None:
            return await trio.sleep_forever()

        asker.yield_session = nothing  # type: ignore[method-assign]
        began = trio.current_time()
        again = await goes_on(it, "b", old, old.receipts)
        assert trio.current_time() - began < 4
        lost = await old.client.ack(1, *old.receipts)
        assert lost.lease_lost, "what it still says no longer counts"
        old.client.say(Credit(1, 50))  # it writes down what changed, and hears that it is over
        assert await old.client.socket.until_closed() == (4001, "taken_over")
        assert await again.ack(1, *old.receipts) == Done(1)
