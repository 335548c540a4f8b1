"""Subscriptions: credit, options, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from msgspec import Raw

from pushlane.wire.codec import JSON, MSGPACK, Codec
from pushlane.wire.frames import (
    Ack,
    Credit,
    Deliver,
    Done,
    Ended,
    ErrorFrame,
    LeaseLostFrame,
    Nack,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from pushlane.wire.limits import Limits
from pushlane_dispatcher.callers.feed import Feed
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule
from tests.gateway.session.rig import TENANT, Client, blocked, known, rig


async def refused(client: Client, frame: Subscribe) -> ErrorFrame:
    client.say(frame)
    error = await client.error()
    assert (error.id, error.request) == (frame.id, "subscribe")
    return error


async def test_a_queue_is_made_by_the_first_subscribe() -> None:
    async with rig() as it:
        client = await it.client()
        assert await client.subscribe("new") == 1
        assert await client.subscribe("new") == 2
        assert (await it.dispatcher.stats(TENANT, "new")).subscriptions == 2


async def test_without_auto_create_it_is_not_found() -> None:
    async with rig(auto_create=False) as it:
        client = await it.client()
        assert (await refused(client, Subscribe(1, "new", 1))).code == "not_found"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Subscribe(1, "q", 0), "bad_request"),
        (Subscribe(1, "q", 10_001), "bad_request"),
        (Subscribe(1, "q", 1, lease_ms=999), "bad_request"),
        (Subscribe(1, "q", 1, lease_ms=10**9), "bad_request"),
        (Subscribe(1, "no name", 1), "bad_request"),
        (Subscribe(1, "topic:t", 1), "bad_request"),
    ],
)
async def test_what_is_refused(frame: Subscribe, code: str) -> None:
    async with rig() as it:
        client = await it.client()
        assert (await refused(client, frame)).code == code
        assert await it.dispatcher.list(TENANT) == []
        await client.subscribe("q")


async def test_rights() -> None:
    ann = Identity("ann", "default", (Rule("publish", "a"), Rule("consume", "b")))
    async with rig(authenticate=known(ann=ann)) as it:
        client = await it.client(token="ann")
        assert (await refused(client, Subscribe(7, "a", 1))).code == "forbidden"
        await client.subscribe("b")


async def test_never_more_unsettled_than_credit() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q", credit=2)
        await client.publish("q", b"1", b"2", b"3")
        first, second = await client.deliver()
        await client.silence(1)
        assert first.receipt is not None
        client.say(Ack(sub, [first.receipt]))
        (third,) = await client.deliver()
        assert third.body == Raw(b"3")
        assert second.receipt != third.receipt


async def test_credit_0_pauses_and_lowering_takes_nothing_back() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q", credit=2)
        await client.publish("q", b"1", b"2", b"3")
        first, second = await client.deliver()
        client.say(Credit(sub, 0))
        assert first.receipt is not None
        assert (await client.ack(sub, first.receipt)).lease_lost == []
        await client.silence(1)
        client.say(Credit(sub, 1))
        await client.silence(1)
        client.say(Credit(sub, 2))
        assert len(await client.deliver()) == 1
        assert second.receipt is not None
        assert (await client.ack(sub, second.receipt)).lease_lost == []


async def test_bad_credit() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        client.say(Credit(sub, 10_001))
        error = await client.error()
        assert (error.code, error.request, error.sub) == ("bad_request", "credit", sub)
        client.say(Credit(9, 1))
        assert (await client.error()).message == "there is no sub 9"


async def test_too_many_subs_and_room_again_after_an_unsubscribe() -> None:
    async with rig(limits=Limits(subs=2)) as it:
        client = await it.client()
        await client.subscribe("q")
        sub = await client.subscribe("q")
        error = await refused(client, Subscribe(90, "q", 1))
        assert (error.code, it.limit("subs")) == ("bad_request", 1)
        client.say(Unsubscribe(91, sub))
        assert await client.socket.hear() == Done(91)
        assert await client.subscribe("q") == 3
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 2


async def test_a_shard_with_too_many_subscriptions() -> None:
    async with rig(bounds=Bounds(subscriptions=1)) as it:
        client = await it.client()
        await client.subscribe("q")
        assert (await refused(client, Subscribe(9, "q", 1))).code == "throttled"


async def test_lease_times() -> None:
    async with rig() as it:
        await it.queue("q", lease_ms=7_000)
        client = await it.client()
        await client.subscribe("q", credit=1)
        await client.publish("q", b"1", b"2")
        assert (await client.deliver())[0].lease_ms == 7_000
        own = await client.subscribe("q", credit=1, lease_ms=2_000)
        (delivered,) = await client.deliver()
        assert delivered.lease_ms == 2_000
        lost = await client.socket.hear_a(LeaseLostFrame)
        assert lost == LeaseLostFrame(own, [delivered.receipt or ""])
        assert trio.current_time() == pytest.approx(2)


async def test_start_explicit_counts_no_attempt_before_start() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q", start="explicit", lease_ms=1_000)
        await client.publish("q", b"1", b"2")
        first, second = await client.deliver()
        await client.silence(20)
        assert first.receipt is not None
        assert second.receipt is not None
        client.say(Nack(sub, [first.receipt], id=50))
        assert await client.socket.hear() == Done(50)
        (again,) = await client.deliver()
        assert (again.id, again.attempt) == (first.id, 1)
        client.say(Start(sub, [second.receipt], 51))
        assert await client.socket.hear() == Done(51)
        lost = await client.socket.hear_a(LeaseLostFrame)
        assert lost.receipts == [second.receipt]


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])
async def test_ack_none_is_at_most_once(codec: Codec) -> None:
    async with rig() as it:
        client = await it.client(codec)
        sub = await client.subscribe("q", credit=0, ack="none")
        client.say(Credit(sub, 0))
        await client.publish("q", b"1", b"2")
        messages = await client.deliveries(2)
        for found in messages:
            assert (found.receipt, found.fence, found.lease_ms) == (None, None, None)
            assert found.attempt == 1
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 2


async def test_unsubscribe_leaves_leases_alone_and_they_can_be_settled() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", b"1", b"2")
        first, second = await client.deliver()
        assert first.receipt is not None
        assert second.receipt is not None
        client.say(Unsubscribe(50, sub))
        assert await client.socket.hear() == Done(50)
        await client.publish("q", b"3")
        await client.silence(1)
        assert await client.ack(sub, first.receipt) == Done(4)
        assert await client.ack(sub, first.receipt) == Done(5, duplicate=[first.receipt])
        client.say(Unsubscribe(51, sub))
        assert await client.socket.hear() == Done(51)
        lost = await client.socket.hear_a(LeaseLostFrame)
        assert lost == LeaseLostFrame(sub, [second.receipt])


async def test_what_unsubscribe_gives_back_goes_to_others() -> None:
    async with rig() as it:
        one, other = await it.client(), await it.client()
        sub = await one.subscribe("q", start="explicit")
        await one.publish("q", b"1")
        await one.deliver()
        await other.subscribe("q")
        one.say(Unsubscribe(50, sub))
        assert len(await other.deliver()) == 1


async def test_an_unsubscribed_sub_is_forgotten_in_the_end() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        assert found.receipt is not None
        client.say(Unsubscribe(50, sub))
        await client.socket.hear_a(Done)
        await client.ack(sub, found.receipt)
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 1
        await trio.sleep(31)
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 0
        assert await client.ack(sub, found.receipt) == Done(4, lease_lost=[found.receipt])
        client.say(Ack(sub, [found.receipt]))
        assert await client.socket.hear() == LeaseLostFrame(sub, [found.receipt])


async def test_a_deleted_queue_ends_its_subscriptions() -> None:
    async with rig() as it:
        client = await it.client()
        await it.queue("q", shards=3)
        sub = await client.subscribe("q")
        await it.dispatcher.delete(TENANT, "q")
        ended = await client.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (sub, "not_found")
        await client.silence(60)
        assert await client.subscribe("q") == sub + 1


async def test_subscribed_comes_before_the_first_delivery() -> None:
    async with rig() as it:
        client = await it.client()
        await client.publish("q", *[b"1"] * 10)
        client.say(Subscribe(40, "q", 5), Subscribe(41, "q", 5))
        frames = [await client.socket.hear() for _ in range(4)]
        assert [type(frame) for frame in frames] == [Subscribed, Subscribed, Deliver, Deliver]


async def test_dead_letters_say_whence_they_came() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.subscribe("q.dead")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        assert found.receipt is not None
        client.say(Nack(sub, [found.receipt], error="no customer", dead=True))
        (dead,) = await client.deliver()
        assert dead.dead is not None
        assert (dead.dead.cause, dead.dead.queue, dead.dead.id) == ("rejected", "q", found.id)
        assert dead.dead.error == "no customer"


async def test_equal_consumers_share_equally() -> None:
    async with rig() as it:
        clients = [await it.client() for _ in range(4)]
        for client in clients:
            await client.subscribe("q", credit=25)
        await clients[0].publish("q", *[b"1"] * 100)
        await blocked()
        counts = []
        for client in clients:
            frames = [frame for frame in client.socket.unread if isinstance(frame, Deliver)]
            counts.append(sum(len(frame.messages) for frame in frames))
        assert counts == [25] * 4


@pytest.mark.parametrize("clean", [True, False])
async def test_what_is_answered_after_its_client_has_gone_is_nobodys(
    clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard on another node may take its time."""
    answers: list[Callable[[], None]] = []
    attach = Feed.attach

    def slowly(self: Feed, shards: Any, answer: Callable[..., None]) -> None:
        attach(self, shards, lambda *told: answers.append(partial(answer, *told)))

    monkeypatch.setattr(Feed, "attach", slowly)
    async with rig() as it:
        await it.queue()
        client = await it.client()
        client.say(Subscribe(1, "q", 1))
        await blocked()
        await (client.leave() if clean else client.drop())
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 1
        answers.pop()()
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 0
