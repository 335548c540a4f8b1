"""A message's way through a session: published, delivered, settled, in both encodings."""

from __future__ import annotations

import pytest
from msgspec import Raw

from pushlane.wire.codec import JSON, MSGPACK, Codec
from pushlane.wire.frames import Done, Nack, Publish, Published, PublishMessage
from tests.gateway.session.rig import TENANT, message, rig

BOTH = pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])


@BOTH
async def test_publish_deliver_ack(codec: Codec) -> None:
    async with rig() as it:
        producer = await it.client(codec)
        published = await producer.publish("orders", b'{"order": 17}', b"null")
        assert len(published.ids) == 2
        assert published.failed == []
        consumer = await it.client(codec)
        sub = await consumer.subscribe("orders")
        first, second = await consumer.deliver()
        assert [first.id, second.id] == published.ids
        assert (first.body, second.body) == (Raw(b'{"order": 17}'), Raw(b"null"))
        assert first.attempt == 1
        assert first.fence is not None
        assert first.lease_ms == 30_000
        assert first.receipt is not None
        run = f"{first.receipt}-2"
        assert await consumer.ack(sub, run) == Done(1 + 1)
        stats = await it.dispatcher.stats(TENANT, "orders")
        assert (stats.acked, stats.stored) == (2, 0)


@BOTH
async def test_everything_a_message_carries_comes_out_again(codec: Codec) -> None:
    async with rig() as it:
        client = await it.client(codec)
        sub = await client.subscribe("q")
        client.say(
            Publish(
                9,
                "q",
                [
                    PublishMessage(data=b"\x00\xff", headers={"type": "raw"}),
                    message(b'[1,  "\\u00e9"]', key="k", headers={"a": "ä", "b": "\n"}),
                    message(b"0", ttl_ms=5000, event_at=3),
                ],
            )
        )
        await client.socket.hear_a(Published)
        data, keyed, plain = await client.deliveries(3)
        assert (data.data, data.headers) == (b"\x00\xff", {"type": "raw"})
        assert (keyed.key, keyed.headers) == ("k", {"a": "ä", "b": "\n"})
        assert keyed.body == Raw(b'[1,  "\\u00e9"]')
        assert plain.key is None
        assert plain.headers is None
        assert data.receipt is not None
        assert keyed.receipt is not None
        client.say(Nack(sub, [keyed.receipt], 0, id=77))
        assert await client.socket.hear() == Done(77)
        (again,) = await client.deliver()
        assert (again.id, again.attempt) == (keyed.id, 2)
        assert again.receipt != keyed.receipt


async def test_what_others_wait_for_is_written_before_a_long_delivery() -> None:
    async with rig() as it:
        consumer = await it.client()
        await consumer.subscribe("q", credit=1_000)
        producer = await it.client()
        few = it.sessions.context.settings.hurry_messages - 1
        await producer.publish("q", *[b"1"] * few)
        await consumer.deliveries(few)
        assert consumer.socket.hurried == []
        await producer.publish("q", *[b"1"] * (few + 1))
        await consumer.deliveries(few + 1)
        (before,) = consumer.socket.hurried
        assert before == len(consumer.socket.sent) - 1
