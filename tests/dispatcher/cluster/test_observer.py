"""What operators see of a cluster: nodes and their states, and what is wrong, by name."""

from __future__ import annotations

import logging

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.cluster.counters import LastRefusal, LinkCounters
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import ALONE, ClusterStatus, Load, NodeStatus
from pushlane_dispatcher.shard.shards import Lateness
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreRefused
from pushlane_storage.slot import SLOTS, slot_of
from tests.dispatcher.cluster.test_cluster import Client, make
from tests.dispatcher.cluster.world import Node, World, cluster, until
from tests.dispatcher.rig import TENANT, dispatching, message


async def seen(node: Node) -> dict[str, NodeStatus]:
    """The nodes by name."""
    return {one.name: one for one in (await node.dispatcher.cluster_status()).nodes}


def codes(status: ClusterStatus) -> list[str]:
    return [problem.code for problem in status.problems]


async def all_up(world: World) -> None:
    await until(
        lambda: all(
            node.cluster.node_states()["up"] == len(world.nodes)
            and len(node.cluster.latencies()) == len(world.nodes) - 1
            for node in world.nodes
        )
    )


async def test_every_node_shows_the_same_cluster(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world, shards=8)
        await Client(world.nodes[0]).publish(*[message(b"1", key=f"k{n}") for n in range(40)])
        await all_up(world)
        await trio.sleep(5)
        for node in world.nodes:
            status = await node.dispatcher.cluster_status()
            assert status.shared
            assert status.cluster == "pushlane"
            assert [one.name for one in status.nodes] == ["a", "b", "c"]
            assert [one.state for one in status.nodes] == ["up"] * 3
            assert [one.name for one in status.nodes if one.this] == [node.name]
            assert sum(one.placed for one in status.nodes) == SLOTS
            held = {one.name: len(one.dispatcher._shards.slots_since()) for one in world.nodes}
            assert {one.name: one.slots for one in status.nodes} == held
            assert sum(one.shards or 0 for one in status.nodes) == 8
            assert {one.links for one in status.nodes} == {2}
            assert all(one.this or one.latency_ms is not None for one in status.nodes)
            assert status.orphans == 0
            assert codes(status) == []


async def test_sessions_and_rates_come_from_each_node_itself(autojump_clock: object) -> None:
    async with cluster(2) as world:
        a, b = world.nodes
        sent = 0

        def load() -> Load:
            return Load(7, published=int(trio.current_time() * 100), delivered=sent)

        b.cluster.introduce("http://b:8420", load)
        await trio.sleep(30)
        found = (await seen(a))["b"]
        assert found.url == "http://b:8420"
        assert found.sessions == 7
        assert found.published == pytest.approx(100, abs=1)
        assert found.delivered == 0


async def test_a_dead_node_is_told_apart_and_waited_for_by_nobody(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await all_up(world)
        await make(world, shards=8)
        a, b, c = world.nodes
        await Client(a).publish(*[message(b"1", key=f"k{n}") for n in range(40)])
        lost = len(c.dispatcher._shards.slots_since())
        assert lost, "c has nothing to lose"
        world.kill(c)
        await until(lambda: a.cluster.node_states()["unreachable"] == 1)
        began = trio.current_time()
        status = await a.dispatcher.cluster_status()
        assert trio.current_time() - began < 0.5
        [dead] = [one for one in status.nodes if one.name == "c"]
        assert dead.state == "unreachable"
        assert dead.why == "nobody listens at c:1"
        assert dead.sessions is None
        assert codes(status) == ["unreachable"]
        await until(lambda: c.process not in {one.process for one in a.cluster.members.others})
        for n in range(40):
            await Client(a).publish(message(b"2", key=f"k{n}"))
        after = [await node.dispatcher.cluster_status() for node in (a, b)]
        assert [one.name for one in after[0].nodes] == ["a", "b"]
        assert [[one.name for one in status.gone] for status in after] == [["c"], ["c"]]
        assert any("stands still" in one.why for status in after for one in status.gone)
        counted = [node.cluster.numbers() for node in (a, b)]
        assert sum(one["takeovers"] for one in counted) == lost
        assert all(one["takeover_seconds_most"] <= one["takeover_seconds"] for one in counted)
        assert after[0].orphans == 0


async def test_a_node_that_is_cut_off_says_for_how_long(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await all_up(world)
        a, b, _ = world.nodes
        world.air.cut(a.address, b.address)
        await until(lambda: a.cluster.node_states()["unreachable"] == 1)
        await trio.sleep(20)
        found = (await seen(a))["b"]
        assert found.state == "unreachable"
        assert 15_000 < found.state_ms < 21_000
        assert found.why == "b:1: it does not answer"
        world.air.join(a.address, b.address)
        await until(lambda: a.cluster.node_states()["unreachable"] == 0)
        assert (await seen(a))["b"].why is None


async def test_an_address_that_others_cannot_reach(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(2) as world:
        stray = await world.start("stray", about={"address": "nowhere:9"})
        await trio.sleep(60)
        status = await stray.dispatcher.cluster_status()
        assert codes(status) == ["not_placed"]
        assert "nowhere:9" in status.problems[0].text
        [own] = [one for one in status.nodes if one.this]
        assert (own.state, own.placed) == ("not_placed", 0)
        there = (await seen(world.nodes[0]))["stray"]
        assert (there.state, there.placed) == ("unreachable", 0)
        assert there.why == "nobody listens at nowhere:9"
        said = [one for one in caplog.messages if "no other node has reached this one" in one]
        assert len(said) == 1
        said = [one for one in caplog.messages if one.startswith("node stray can't be reached")]
        assert len(said) == 2, "once for each who tries"


async def test_two_nodes_with_one_name(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(2) as world:
        await world.start("twin", about={"name": "a"})
        await trio.sleep(60)
        for node in world.nodes:
            status = await node.dispatcher.cluster_status()
            assert codes(status) == ["same_name"]
            assert status.problems[0].nodes == ("a",)
            assert "a:1, twin:1" in status.problems[0].text
            placed = [one.placed for one in status.nodes if one.name == "a"]
            assert min(placed) == 0 < max(placed)
        assert len([one for one in caplog.messages if "are called a" in one]) == 3


async def test_two_nodes_with_one_address(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(3) as world:
        stray = await world.start("stray", about={"address": "b:1"})
        await trio.sleep(60)
        for node in world.nodes:
            status = await node.dispatcher.cluster_status()
            assert "same_address" in codes(status)
            assert node.cluster.members.fenced == 0, "nobody is dead"
        [problem] = [one for one in status.problems if one.code == "same_address"]
        assert problem.nodes == ("b", "stray")
        assert "b and stray say that they are at b:1" in problem.text
        there = (await seen(world.nodes[0]))["stray"]
        assert (there.state, there.placed) == ("unreachable", 0)
        assert there.why == "another process answers at b:1, of node b"
        assert len([one for one in caplog.messages if "say that they are at b:1" in one]) == 4
        await make(world, shards=8)
        await Client(stray).publish(message(b"1"))
        assert stray.cluster.numbers()["slots"] == 0, "it passes on what its clients want"


async def test_who_has_the_address_of_a_node_that_comes_is_fenced_once_at_most(
    autojump_clock: object,
) -> None:
    async with cluster(1) as world:
        [a] = world.nodes
        stray = await world.start("stray", about={"address": "b:1"})
        await trio.sleep(30)
        await world.start("b")
        await trio.sleep(60)
        assert a.cluster.members.fenced <= 1
        process = stray.process
        await trio.sleep(60)
        assert stray.process == process
        assert "same_address" in codes(await a.dispatcher.cluster_status())


async def test_how_late_a_node_is_and_whether_requests_reach_it(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(2) as world:
        a, b = world.nodes
        await make(world, shards=8)
        await Client(a).publish(*[message(b"1", key=f"k{n}") for n in range(40)])
        await trio.sleep(10)
        for one in (await seen(a)).values():
            assert one.oldest_ms is not None
            assert 5_000 < one.oldest_ms <= 10_000
            assert one.lag_ms == 0
            assert one.roster_ms is not None
            assert one.roster_ms < 1_000
        assert {name: one.breaker for name, one in (await seen(a)).items()} == {
            "a": None, "b": "closed",
        }  # fmt: skip
        late = Lateness(None, 1_234)
        monkeypatch.setattr(b.cluster.observer, "_ask_lateness", lambda: late)
        await trio.sleep(10)
        found = (await seen(a))["b"]
        assert (found.oldest_ms, found.lag_ms) == (None, 1_234)
        world.air.cut(a.address, b.address)
        await until(lambda: a.cluster.breakers()["closed"] == 0)
        await trio.sleep(1)
        found = (await seen(a))["b"]
        assert found.breaker in ("open", "half_open")
        assert (found.oldest_ms, found.lag_ms) == (None, None), "nobody could tell"
        world.air.join(a.address, b.address)
        await until(lambda: a.cluster.breakers() == {"closed": 1, "open": 0, "half_open": 0})


async def test_an_older_process_that_nobody_can_ask(autojump_clock: object) -> None:
    quick = ClusterSettings(publish_ms=2_000)
    async with cluster(1, cluster=quick, about={"version": "0.1.0"}) as world:
        [a] = world.nodes
        await make(world, shards=1)
        old = await world.start("old", about={"address": "", "version": "0.0.9"})
        key = ShardKey((await a.dispatcher.get(TENANT, "q")).id, 0)
        await old.store.ownership.claim(slot_of(key), "old")
        await trio.sleep(5)
        there = (await seen(a))["old"]
        assert (there.state, there.why) == ("unreachable", "it says no address for other nodes")
        assert (there.slots, there.placed, there.version) == (1, 0, "0.0.9")
        assert codes(await a.dispatcher.cluster_status()) == ["unreachable", "version"]
        with pytest.raises(Unavailable):
            await a.dispatcher.open(TENANT, "q")
        await world.stop(old)
        await Client(a).publish(message(b"1"))


async def test_two_versions_of_the_software(autojump_clock: object) -> None:
    async with cluster(1, about={"version": "1.0"}) as world:
        await world.start("new", about={"version": "1.1"})
        await world.linked()
        status = await world.nodes[0].dispatcher.cluster_status()
        assert codes(status) == ["version"]
        assert "a runs 1.0, new runs 1.1" in status.problems[0].text


async def test_clocks_and_refused_links_are_reported(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(2) as world:
        a, b = world.nodes
        counters = LinkCounters()
        now = trio.current_time()
        counters.refused["wrong_key"] = LastRefusal(now, "10.0.0.9:5: wrong_key: stray has not")
        counters.refused["old_version"] = LastRefusal(now - 3_600, "long ago")
        counters.refused["not_a_link"] = LastRefusal(now, "a browser")
        monkeypatch.setattr(a.cluster.observer, "_links", lambda: counters)
        clocks = {b.process: -3_600_000}
        monkeypatch.setattr(a.cluster.observer, "_ahead_ms", clocks.get)
        status = await a.dispatcher.cluster_status()
        assert codes(status) == ["clock", "refused"]
        clock, refused = status.problems
        assert "the clock of node b is -3600 s from ours" in clock.text
        assert refused.text == "this node refuses a link from 10.0.0.9:5: wrong_key: stray has not"
        assert (await seen(a))["b"].clock_ahead_ms == -3_600_000


async def test_a_store_that_does_not_answer_holds_up_nobody(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(2) as world:
        [a, _] = world.nodes

        async def hang() -> None:
            await trio.sleep_forever()

        async def fail() -> None:
            raise StoreRefused("away")

        for answer in (hang, fail):
            monkeypatch.setattr(a.store.ownership, "owners", answer)
            began = trio.current_time()
            status = await a.dispatcher.cluster_status()
            assert trio.current_time() - began <= 2.1
            assert [one.slots for one in status.nodes] == [None, None]
            assert status.orphans is None
        monkeypatch.setattr(type(a.store.ownership), "beat_failing_ms", 5_000)
        assert codes(await a.dispatcher.cluster_status()) == ["store"]


async def test_a_server_alone_says_so() -> None:
    async with dispatching() as dispatcher:
        assert await dispatcher.cluster_status() == ALONE
