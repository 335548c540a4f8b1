"""Metrics of a cluster: from a node with peers."""

from __future__ import annotations

import pytest
import trio

from pushlane_dispatcher.cluster.counters import LinkCounters, count
from pushlane_gateway.cluster_metrics import show_cluster
from pushlane_gateway.metrics import Metrics
from tests.dispatcher.cluster.test_cluster import Client, make
from tests.dispatcher.cluster.test_observer import all_up
from tests.dispatcher.cluster.world import cluster
from tests.dispatcher.rig import message
from tests.gateway.test_metrics import samples


async def test_what_a_node_knows_is_shown(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(3) as world:
        await all_up(world)
        await make(world, shards=8)
        a, _, c = world.nodes
        await Client(a).publish(*[message(b"1", key=f"k{n}") for n in range(40)])
        counters = LinkCounters()
        counters.open, counters.bytes_in = 4, 1_000
        count(counters.ends, "overrun")
        count(counters.refusals, "wrong_key")
        monkeypatch.setattr(a.network, "numbers", lambda: counters)
        metrics = Metrics()
        show_cluster(metrics, a.cluster)
        found = samples(metrics)
        assert found["pushlane_cluster_nodes", "up"] == 3
        assert found["pushlane_cluster_nodes", "unreachable"] == 0
        assert found["pushlane_cluster_peers", ""] == 2
        assert found["pushlane_cluster_slots", ""] == len(a.dispatcher._shards.slots_since())
        assert found["pushlane_cluster_slots_elsewhere", ""] == 0
        assert found["pushlane_cluster_slots_orphaned", ""] == 0
        wanted = {one.name: one.placed for one in (await a.dispatcher.cluster_status()).nodes}
        assert found["pushlane_cluster_slots_placed", ""] == wanted["a"]
        assert found["pushlane_cluster_breakers", "closed"] == 2
        assert found["pushlane_cluster_lag_seconds", ""] == 0
        assert found["pushlane_cluster_roster_seconds", ""] < 1
        assert found["pushlane_cluster_forwarded", ""] == 8 - len(a.dispatcher._shards)
        assert {"b", "c"} == {
            label for name, label in found if name == "pushlane_cluster_latency_seconds"
        }
        assert found["pushlane_links_open", ""] == 4
        assert found["pushlane_links_overruns", ""] == 1
        assert found["pushlane_links_bytes_received", ""] == 1_000
        assert found["pushlane_link_ends_total", "overrun"] == 1
        assert found["pushlane_link_refusals_total", "wrong_key"] == 1
        await trio.sleep(10)
        assert 7 < samples(metrics)["pushlane_cluster_oldest_seconds", ""] < 11
        world.kill(c)
        await Client(a).publish(*[message(b"1", key=f"k{n}") for n in range(40)])
        found = samples(metrics)
        assert found["pushlane_cluster_nodes", "up"] == 2
        assert found["pushlane_cluster_takeovers", ""] == a.cluster.router.takeovers.count
        assert {"b"} == {
            label for name, label in found if name == "pushlane_cluster_latency_seconds"
        }
