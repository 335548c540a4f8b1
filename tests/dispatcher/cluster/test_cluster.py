"""Any node, any queue: several nodes, a client of one of them."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pushlane.wire.errors import Conflict, NotFound, PushlaneError
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.callers.receive import Receive, Received
from pushlane_dispatcher.cluster.placement import placed
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.slot import slot_of
from tests.dispatcher.cluster.world import Node, World, cluster, until
from tests.dispatcher.rig import START, TENANT, message
from tests.dispatcher.subscriber import Subscriber, unforeseen

SHARDS = 4
HOUR = 3_600_000
"""Time passes quickly here: leases must not run out meanwhile."""


class Client:
    """Of one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.door: Door = node.dispatcher.door(Caller(TENANT, (), QueueConfig()), unforeseen)

    async def publish(self, *messages: Message, queue: str = "q") -> Publication:
        waiter: Waiter[Publication | None] = Waiter()
        self.door.publish(queue, list(messages), None, waiter)
        publication = await waiter.wait()
        assert publication is not None
        return publication

    async def subscribe(self, queue: str = "q", **options: Any) -> Subscriber:
        subscriber = Subscriber()
        spec = Spec(TENANT, queue, options.pop("session", "s"), **options)
        self.door.subscribe(spec, subscriber, subscriber.subscribed)
        await until(lambda: hasattr(subscriber, "feed") or subscriber.error is not None)
        if subscriber.error is not None:
            raise subscriber.error
        return subscriber


def numbered(first: int, end: int) -> list[Message]:
    """Messages that may be repeated."""
    return [
        message(b"%d" % n, key=f"{n}", producer="p", producer_seq=n + 1) for n in range(first, end)
    ]


async def make(world: World, shards: int = SHARDS, **config: Any) -> None:
    await world.nodes[0].dispatcher.create(TENANT, "q", QueueConfig(shards=shards, **config))


def owners(world: World) -> dict[int, str]:
    """Who has which shard of the queue, by what is open."""
    found: dict[int, str] = {}
    for node in world.nodes:
        for held in node.dispatcher._shards._held.values():
            if held.row.name == "q":
                found[held.number] = node.name
    return found


async def test_any_node_publishes_and_consumes_any_queue(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world, shards=8)
        clients = [Client(node) for node in world.nodes]
        for n in range(60):
            done = await clients[n % 3].publish(message(b"%d" % n, key=f"k{n}"))
            assert not done.failed
        assert len(set(owners(world).values())) > 1, "the shards are not spread"
        took = [
            await client.subscribe(session=f"s{i}", credit=100, lease_ms=HOUR)
            for i, client in enumerate(clients)
        ]
        await until(lambda: sum(len(one.bodies) for one in took) == 60)
        assert sorted(int(body) for one in took for body in one.bodies) == list(range(60))
        for one in took:
            settled = await one.ack(*one.receipts)
            assert (settled.lost, settled.duplicate, settled.error) == ([], [], None)
        for node in world.nodes:
            stats = await node.dispatcher.stats(TENANT, "q")
            assert stats.stored == 0


async def test_a_queue_is_made_by_the_first_publish_through_any_node(
    autojump_clock: object,
) -> None:
    async with cluster(3) as world:
        done = await Client(world.nodes[1]).publish(message(b"1"), queue="new")
        assert not done.failed
        one = await Client(world.nodes[2]).subscribe("new")
        await until(lambda: one.bodies == [b"1"])


async def test_order_by_key_and_repeats_hold_over_nodes(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world)
        first, second = Client(world.nodes[0]), Client(world.nodes[1])
        sent = [message(b"%d" % n, key="k", producer="p", producer_seq=n + 1) for n in range(20)]
        for one in sent:
            await first.publish(one)
        again = await second.publish(*sent)
        assert again.duplicates == list(range(20))
        consumer = await Client(world.nodes[2]).subscribe(credit=100, lease_ms=HOUR)
        for n in range(20):
            await until(lambda n=n: len(consumer.bodies) == n + 1)  # type: ignore[misc]
            await consumer.ack(consumer.receipts[-1])
        assert consumer.bodies == [b"%d" % n for n in range(20)]


async def test_a_nack_an_extension_and_a_foreign_receipt_from_afar(autojump_clock: object) -> None:
    async with cluster(2) as world:
        await make(world)
        client = Client(world.nodes[0])
        await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(8)))
        one = await Client(world.nodes[1]).subscribe(credit=100, lease_ms=HOUR)
        await until(lambda: len(one.bodies) == 8)
        done = await one.settle(Act("extend", lease_ms=2 * HOUR), *one.receipts)
        assert (done.lost, done.error) == ([], None)
        done = await one.settle(Act("nack", delay_ms=0), *one.receipts)
        assert (done.lost, done.error) == ([], None)
        await until(lambda: len(one.bodies) == 16)
        foreign = await Client(world.nodes[0]).subscribe(session="t", credit=100)
        done = await foreign.ack(*one.receipts[8:])
        assert len(done.lost) == 8
        done = await one.ack(*one.receipts[8:])
        assert done.lost == []
        done = await one.ack(*one.receipts[8:])
        assert sum(high - low + 1 for _, low, high in done.duplicate) == 8


async def begin_to_receive(node: Node) -> Receive:
    receive = Receive(TENANT, "q", "somebody", 4, HOUR)

    def answer(feed: Feed | None, error: PushlaneError | None) -> None:
        receive.subscribed(feed)

    Client(node).door.subscribe(receive.spec, receive, answer)
    await until(lambda: hasattr(receive, "feed"))
    return receive


async def test_a_request_receives_from_shards_of_several_nodes(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world, shards=8)
        client = Client(world.nodes[0])
        await client.publish(*numbered(0, 24))
        got: list[Received] = []
        for node in (*world.nodes, *world.nodes):
            receive = await begin_to_receive(node)
            before = trio.current_time()
            await receive.wait(20_000, 1_000)
            assert trio.current_time() - before < 2, "it waits though there is something"
            got += receive.take(1 << 20, lambda message: len(message.body))
            receive.begin()
        assert sorted(int(one.message.body) for one in got) == list(range(24))
        waiter: Waiter[Gather] = Waiter()
        Client(world.nodes[1]).door.settle(
            "q", ACK, [(one.prefix, one.n, one.n) for one in got], waiter
        )
        done = await waiter.wait()
        assert (done.lost, done.error) == ([], None)


async def test_a_killed_owner_is_followed_by_another_one(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world)
        client = Client(world.nodes[0])
        consumer = await client.subscribe(credit=1_000, lease_ms=HOUR)
        await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(40)))
        await until(lambda: len(consumer.bodies) == 40)
        having = set(owners(world).values())
        victim = next(node for node in world.nodes[1:] if node.name in having)
        began = trio.current_time()
        world.kill(victim)
        done = await client.publish(*numbered(40, 80))
        assert not done.failed
        assert trio.current_time() - began < 5
        await until(lambda: len(consumer.bodies) == 80)
        assert sorted(map(int, consumer.bodies)) == list(range(80)), "nothing was sent twice"
        assert consumer.gone == [], "the lease cache knew what was out"
        done2 = await consumer.ack(*consumer.receipts)
        assert (done2.lost, done2.error) == ([], None)


async def test_what_was_reserved_waits_for_a_session_whose_gateway_died_with_the_owner(
    autojump_clock: object,
) -> None:
    async with cluster(2) as world:
        await make(world, shards=1)
        await Client(world.nodes[0]).publish(message(b"1"))
        both = next(node for node in world.nodes if node.name == owners(world)[0])
        rest = next(node for node in world.nodes if node is not both)
        gone = await Client(both).subscribe(credit=5, explicit=True)
        await until(lambda: gone.bodies == [b"1"])
        world.kill(both)
        client = Client(rest)
        await client.publish(*numbered(2, 3))
        other = await client.subscribe(session="t", credit=5, lease_ms=HOUR)
        await trio.sleep(20)
        assert other.bodies == [b"2"]
        await until(lambda: other.bodies == [b"2", b"1"], 20)


async def test_links_that_break_cost_neither_messages_nor_leases(autojump_clock: object) -> None:
    async with cluster(2) as world:
        await make(world)
        client = Client(world.nodes[0])
        consumer = await client.subscribe(credit=1_000, explicit=True)
        await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(40)))
        await until(lambda: len(consumer.bodies) == 40)
        for _ in range(3):
            world.air.drop(world.nodes[1].address)
            await world.linked()
        await client.publish(message(b"40", key="40"))
        await until(lambda: len(consumer.bodies) == 41)
        done = await consumer.ack(*consumer.receipts)
        assert (done.lost, done.error) == ([], None)
        assert consumer.gone == []


async def test_an_owner_that_cannot_be_reached_keeps_no_other_shard_away(
    autojump_clock: object,
) -> None:
    async with cluster(3) as world:
        await make(world, shards=8)
        own, near, far = world.nodes
        consumer = await Client(own).subscribe(credit=100, lease_ms=HOUR)
        await until(lambda: len(owners(world)) == 8)
        places = owners(world)
        assert set(places.values()) == {"a", "b", "c"}
        world.air.cut(own.address, far.address)
        world.air.drop(near.address)

        def up() -> set[str]:
            return {places[part.number] for part in consumer.feed._parts if part.up}

        nears = list(places.values()).count("b")
        with trio.fail_after(5):  # the far one is waited for for longer
            await until(lambda: consumer.attached == nears and up() == {"a", "b"})
        client = Client(near)
        await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(40)))
        await until(lambda: 0 < len(consumer.bodies) < 40)
        world.air.join(own.address, far.address)
        await until(lambda: len(consumer.bodies) == 40)
        assert len(set(consumer.bodies)) == 40


async def test_publishes_under_way_go_to_the_next_owner_in_their_order(
    autojump_clock: object,
) -> None:
    async with cluster(3) as world:
        await make(world, shards=1)
        await Client(world.nodes[0]).publish(message(b"0", key="k", producer="p", producer_seq=1))
        owner = next(node for node in world.nodes if node.name == owners(world)[0])
        client = Client(next(node for node in world.nodes if node is not owner))
        world.air.most_delay = 0.05
        answers: list[Publication | PushlaneError | None] = []
        for n in range(1, 30):
            client.door.publish(
                "q", [message(b"%d" % n, key="k", producer="p", producer_seq=n + 1)], None,
                lambda done, error=None: answers.append(done or error),
            )  # fmt: skip
        await trio.sleep(0.02)
        world.kill(owner)
        await until(lambda: len(answers) == 29)
        assert [one.failed if isinstance(one, Publication) else one for one in answers] == [{}] * 29
        world.air.most_delay = 0
        consumer = await client.subscribe(credit=100, lease_ms=HOUR)
        for n in range(30):
            await until(lambda n=n: len(consumer.bodies) == n + 1)  # type: ignore[misc]
            await consumer.ack(consumer.receipts[-1])
        assert consumer.bodies == [b"%d" % n for n in range(30)]


async def test_a_node_that_comes_gets_its_share(autojump_clock: object) -> None:
    async with cluster(1) as world:
        await make(world, shards=16)
        client = Client(world.nodes[0])
        consumer = await client.subscribe(credit=1_000, lease_ms=HOUR)
        await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(64)))
        assert set(owners(world).values()) == {"a"}
        await world.start("b")
        await world.linked()
        await until(lambda: "b" in owners(world).values(), 60)
        done = await client.publish(*(message(b"%d" % n, key=f"{n}") for n in range(64, 128)))
        assert not done.failed
        await until(lambda: len(consumer.bodies) == 128)
        assert sorted(map(int, consumer.bodies)) == list(range(128))
        settled = await consumer.ack(*consumer.receipts)
        assert (settled.lost, settled.error) == ([], None)


async def test_what_is_due_is_opened_where_it_belongs(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world, shards=8)
        client = Client(world.nodes[0])
        await client.publish(
            *(message(b"x", key=f"{n}", expires_at=START + 600_000) for n in range(24))
        )
        row = await world.nodes[0].dispatcher.get(TENANT, "q")
        places = world.nodes[0].cluster.members.places
        belong = {
            number: place.name
            for number in range(8)
            if (place := placed(slot_of(ShardKey(row.id, number)), places)) is not None
        }
        with trio.fail_after(600):
            while owners(world):  # noqa: ASYNC110
                await trio.sleep(1)
        found: dict[int, str] = {}
        with trio.fail_after(1_200):
            while len(found) < 8:
                found |= owners(world)
                await trio.sleep(1)
        assert found == belong


@pytest.mark.parametrize("by_order", [False, True])
async def test_a_node_that_drains_gives_everything_to_the_others(
    by_order: bool, autojump_clock: object
) -> None:
    async with cluster(3) as world:
        await make(world, shards=16)
        stays, goes = world.nodes[0], world.nodes[1]
        client, own = Client(stays), Client(goes)
        consumer = await client.subscribe(credit=1_000, lease_ms=HOUR)
        there = await own.subscribe(session="t", credit=1_000, lease_ms=HOUR)
        await client.publish(*numbered(0, 64))
        await until(lambda: len(consumer.bodies) + len(there.bodies) == 64)
        assert goes.name in owners(world).values()
        if by_order:
            await stays.cluster.set_draining(goes.name, True)
            await until(lambda: goes.name not in owners(world).values(), 20)
        else:
            await goes.dispatcher.leave()
        assert goes.name not in owners(world).values()
        done = await own.publish(*numbered(64, 128))
        assert not done.failed
        await until(lambda: len(consumer.bodies) + len(there.bodies) == 128)
        assert sorted(map(int, consumer.bodies + there.bodies)) == list(range(128))
        assert goes.name not in owners(world).values()
        for one in (consumer, there):
            settled = await one.ack(*one.receipts)
            assert (settled.lost, settled.error) == ([], None)
            assert one.gone == []
        if by_order:
            await stays.cluster.set_draining(goes.name, False)
            await until(lambda: goes.name in owners(world).values(), 90)


async def test_who_stops_waits_for_a_slot_that_somebody_needs_for_a_moment(
    autojump_clock: object,
) -> None:
    async with cluster(2) as world:
        await make(world, shards=16)
        goes = world.nodes[1]
        await Client(goes).publish(*numbered(0, 64))
        await until(lambda: goes.name in owners(world).values())
        slots = goes.dispatcher._shards._slots
        slot = next(slot for slot in slots.ours() if slot.in_use)
        async with trio.open_nursery() as nursery:
            with slot.using():
                nursery.start_soon(goes.dispatcher.leave)
                await trio.sleep(1)
                assert [each.number for each in slots.ours()] == [slot.number]
            await until(lambda: not slots.ours(), 1)


async def test_the_last_node_serves_until_it_has_stopped(autojump_clock: object) -> None:
    async with cluster(1) as world:
        await make(world, shards=2)
        [node] = world.nodes
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.dispatcher.leave)
            done = await Client(node).publish(*numbered(0, 10))
        assert not done.failed
        assert trio.current_time() - began < 1


async def test_the_last_node_is_not_drained(autojump_clock: object) -> None:
    async with cluster(2) as world:
        first, second = world.nodes
        await first.cluster.set_draining("b", True)
        await until(lambda: second.cluster.members.leaving)
        await until(lambda: len(first.cluster.members.places) == 1)
        with pytest.raises(Conflict, match="no other node"):
            await second.cluster.set_draining("a", True)
        with pytest.raises(NotFound, match="no node z"):
            await second.cluster.set_draining("z", True)


async def test_large_messages_wait_at_their_owner_until_the_link_has_taken_some(
    autojump_clock: object,
) -> None:
    small, bounds = ClusterSettings(hold_bytes=300_000), Bounds(window_bytes=500_000)
    async with cluster(2, cluster=small, bounds=bounds) as world:
        await make(world, shards=1)
        await Client(world.nodes[0]).publish(message(b"x" * 100_000))
        owner = next(node for node in world.nodes if node.name == owners(world)[0])
        near = next(node for node in world.nodes if node is not owner)
        await Client(owner).publish(*(message(b"x" * 100_000) for _ in range(99)))
        world.air.most_delay = 5  # nothing arrives for a while
        client = Client(near)
        one, other = [
            await client.subscribe(session=name, credit=100, lease_ms=HOUR) for name in "ab"
        ]
        await until(lambda: len(one.bodies) + len(other.bodies) == 100, 1_000)
        assert 300_000 < world.air.most_waiting < 5_000_000, "what one window holds may come on top"
        for each in (one, other):
            done = await each.ack(*each.receipts)
            assert (done.lost, done.error) == ([], None)


async def test_a_deleted_queue_takes_nothing_more_through_any_node(autojump_clock: object) -> None:
    async with cluster(3) as world:
        await make(world)
        clients = [Client(node) for node in world.nodes]
        for n, client in enumerate(clients):
            await client.publish(message(b"%d" % n, key=f"{n}"))
        consumer = await clients[2].subscribe()
        await world.nodes[1].dispatcher.delete(TENANT, "q")
        await until(lambda: consumer.end is not None)
        assert consumer.end == ("not_found", "the queue was deleted")
        await trio.sleep(2)  # as old as a row may be that is remembered
        for node in world.nodes:
            with pytest.raises(NotFound):
                await node.dispatcher.get(TENANT, "q")
        await world.nodes[0].dispatcher.create(TENANT, "q")
        with pytest.raises(Conflict):
            await world.nodes[2].dispatcher.create(TENANT, "q")
        assert not (await clients[1].publish(message(b"9"))).failed
