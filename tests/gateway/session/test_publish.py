"""Publishing: what is stored, what is refused whole, what fails alone."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from msgspec import UNSET, Raw

from pushlane.wire.codec import JSON, MSGPACK, Codec
from pushlane.wire.frames import (
    Ack,
    Deliver,
    Done,
    ErrorFrame,
    Failed,
    Publish,
    Published,
    PublishMessage,
    Subscribe,
)
from pushlane.wire.limits import Limits
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule
from pushlane_storage.interface import StoreRefused, StoreUnknown
from tests.dispatcher.rig import Gate, ScriptedStore, fail
from tests.gateway.session.rig import TENANT, Client, blocked, known, message, rig
from tests.running import runners_of

SMALL = Limits(message_bytes=1024)


async def refused(client: Client, frame: Publish) -> ErrorFrame:
    client.say(frame)
    error = await client.error()
    assert (error.id, error.request) == (frame.id, "publish")
    return error


async def test_a_queue_is_made_by_the_first_publish() -> None:
    async with rig() as it:
        client = await it.client()
        await client.publish("new", b"1")
        assert (await it.dispatcher.get(TENANT, "new")).name == "new"


async def test_without_auto_create_it_is_not_found() -> None:
    async with rig(auto_create=False) as it:
        client = await it.client()
        assert (await refused(client, Publish(1, "new", [message()]))).code == "not_found"
        await it.queue("new")
        await client.publish("new", b"1")


async def test_the_template_of_new_queues() -> None:
    async with rig(template={"lease_ms": 5_000}) as it:
        client = await it.client()
        await client.publish("new", b"1")
        assert (await it.dispatcher.get(TENANT, "new")).config.lease_ms == 5_000


@pytest.mark.parametrize("to", ["", ".hidden", "a b", "a/b", "ü", "x" * 121, "topic:", "topic:a b"])
async def test_illegal_names(to: str) -> None:
    async with rig() as it:
        client = await it.client()
        assert (await refused(client, Publish(1, to, [message()]))).code == "bad_request"
        await client.publish("q", b"1")
        assert len(await it.dispatcher.list(TENANT)) == 1


async def test_topics_have_to_wait() -> None:
    async with rig() as it:
        client = await it.client()
        error = await refused(client, Publish(1, "topic:news", [message()]))
        assert (error.code, error.message) == (
            "bad_request",
            "topics are not supported yet: use a queue",
        )


async def test_rights() -> None:
    ann = Identity("ann", "default", (Rule("publish", "a*"), Rule("consume", "b")))
    async with rig(authenticate=known(ann=ann)) as it:
        client = await it.client(token="ann")
        await client.publish("a1", b"1")
        error = await refused(client, Publish(7, "b", [message()]))
        assert (error.code, error.message) == ("forbidden", "ann may not publish b")
        assert (await refused(client, Publish(8, "topic:a", [message()]))).code == "forbidden"
        assert [row.name for row in await it.dispatcher.list(TENANT)] == ["a1"]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages is 0"),
        ([message()] * 1001, "messages is 1001"),
        ([PublishMessage()], "messages[0]: give exactly one"),
        ([message(), PublishMessage(body=Raw(b"1"), data=b"2")], "messages[1]: give exactly one"),
        ([message(key="k", priority=1)], "messages[0]: key can't be combined"),
        ([message(key="k", delay_ms=1)], "messages[0]: key can't be combined"),
        ([message(key="")], "messages[0]: key has 0 bytes"),
        ([message(key="x" * 513)], "messages[0]: key has 513 bytes"),
        ([message(dedup="x" * 257)], "messages[0]: dedup has 257 bytes"),
        ([message(headers={"a": "x" * 9_000})], "messages[0]: headers has 9001 bytes"),
        ([message(seq=1)], "messages[0]: seq needs a producer"),
        ([message(delay_ms=2**50)], "messages[0]: delay_ms is"),
        ([message(ttl_ms=2**50)], "messages[0]: ttl_ms is"),
        ([message(b"[" * 501 + b"]" * 501)], "messages[0]: body is nested deeper than 500"),
        ([message(dedup="pushlane:x")], "messages[0]: dedup starts with pushlane:"),
    ],
)
async def test_a_mistake_in_form_refuses_the_whole_frame(
    messages: list[PublishMessage], field: str
) -> None:
    async with rig() as it:
        client = await it.client()
        error = await refused(client, Publish(1, "q", messages))
        assert error.code == "bad_request"
        assert error.message.startswith(field)
        assert await it.dispatcher.list(TENANT) == []
        await client.publish("q", b"1")
        assert (await it.dispatcher.stats(TENANT, "q")).stored == 1
        assert it.limit("batch") == (len(messages) > 1000)


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])
async def test_too_large_ones_fail_alone(codec: Codec) -> None:
    async with rig(limits=SMALL) as it:
        client = await it.client(codec)
        await it.queue("q", max_message_bytes=100)
        bodies = [b'"%s"' % (b"x" * size) for size in (10, 2_000, 500, 20)]
        answer = await client.publish("q", *bodies)
        assert [id is None for id in answer.ids] == [False, True, True, False]
        assert [(fault.index, fault.code) for fault in answer.failed] == [
            (1, "too_large"),
            (2, "too_large"),
        ]
        await client.subscribe("q")
        assert [delivered.id for delivered in await client.deliveries(2)] == [
            answer.ids[0],
            answer.ids[3],
        ]
        assert it.limit("message_bytes") == 1


async def test_nothing_but_too_large_ones() -> None:
    async with rig(limits=SMALL, template={"max_message_bytes": 1024}) as it:
        client = await it.client()
        answer = await client.publish("q", b'"%s"' % (b"x" * 2_000))
        assert answer.ids == [None]
        assert answer.failed == [Failed(0, "too_large", "2002 bytes: at most 1024")]


async def test_priorities_and_delays() -> None:
    async with rig() as it:
        client = await it.client()
        client.say(
            Publish(
                1,
                "q",
                [
                    message(b"1", priority=1),
                    message(b"2", priority=9),
                    message(b"3", delay_ms=5000),
                ],
            )
        )
        await client.socket.hear_a(Published)
        await client.subscribe("q")
        assert [bytes(found.body) for found in await client.deliveries(2)] == [b"2", b"1"]  # type: ignore[arg-type]
        (late,) = await client.deliver()
        assert late.body == Raw(b"3")
        assert trio.current_time() == pytest.approx(5)


async def test_a_ttl_ends_a_message() -> None:
    async with rig() as it:
        client = await it.client()
        await client.publish("q", b"1", ttl_ms=1_000)
        await trio.sleep(2)
        await client.subscribe("q")
        await client.silence(5)


# Idempotence


async def test_a_repeated_seq_stores_one_message() -> None:
    async with rig() as it:
        client = await it.client(producer="p")
        first = await client.publish("q", b"1", seq=1)
        again = await client.publish("q", b"1", seq=1)
        assert again.ids == first.ids
        assert again.duplicates == [0]
        other = await it.client(producer="other")
        assert (await other.publish("q", b"1", seq=1)).duplicates == []
        assert it.metrics.published == 2


async def test_a_seq_that_is_older_than_those_remembered_is_a_duplicate_without_an_id() -> None:
    async with rig(bounds=Bounds(producer_seqs=4)) as it:
        client = await it.client(producer="p")
        for seq in range(1, 10):
            await client.publish("q", b"1", seq=seq)
        old = await client.publish("q", b"1", seq=1)
        assert (old.ids, old.duplicates, old.failed) == ([None], [0], [])
        client.say(Publish(99, "q", [message(b"1", seq=n) for n in (1, 9, 10)]))
        answer = await client.socket.hear_a(Published)
        assert [id is None for id in answer.ids] == [True, False, False]
        assert (answer.duplicates, answer.failed) == ([0, 1], [])
        assert it.metrics.published == 10


async def test_a_repeated_dedup_id_stores_one_message_also_inside_one_frame() -> None:
    async with rig() as it:
        client = await it.client()
        answer = await client.publish("q", b"1", b"2", dedup="d")
        assert answer.duplicates == [1]
        assert answer.ids[0] == answer.ids[1]


async def test_duplicates_are_numbered_as_the_frame_has_them() -> None:
    async with rig(limits=SMALL, template={"max_message_bytes": 1024}) as it:
        client = await it.client()
        big = b'"%s"' % (b"x" * 2_000)
        client.say(
            Publish(1, "q", [message(big), message(b"1", dedup="d"), message(b"1", dedup="d")])
        )
        answer = await client.socket.hear_a(Published)
        assert answer.duplicates == [2]
        assert answer.ids[0] is None
        assert answer.ids[1] == answer.ids[2] is not None


# What the store says


async def test_a_full_queue_fails_each_message_alone() -> None:
    async with rig() as it:
        await it.queue("q", max_messages=2)
        client = await it.client()
        answer = await client.publish("q", b"1", b"2", b"3")
        assert [fault.index for fault in answer.failed] == [2]
        assert answer.failed[0].code == "queue_full"
        assert it.metrics.errors.counts["queue_full"] == 1


async def test_a_store_that_refuses() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client = await it.client()
        await client.publish("q", b"1")
        store.script.add("append", fail(StoreRefused("the disk is full")))
        answer = await client.publish("q", b"2")
        assert answer.ids == [None]
        assert answer.failed[0].code == "unavailable"
        await client.publish("q", b"3")


async def test_a_store_that_never_decides_ends_in_unavailable_and_the_session_goes_on() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(decide_ms=1_000)) as it:
        client = await it.client()
        await client.publish("q", b"1")
        store.script.always["append"] = fail(StoreUnknown("?"))
        answer = await client.publish("q", b"2")
        assert answer.failed[0].code == "unavailable"
        del store.script.always["append"]
        await client.publish("q", b"3")


async def test_a_queue_that_cannot_be_opened() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client = await it.client()
        store.script.always["read_queue"] = fail(StoreUnknown("?"))
        assert (await refused(client, Publish(1, "q", [message()]))).code == "unavailable"
        del store.script.always["read_queue"]
        await client.publish("q", b"1")


async def test_publishers_wait_while_a_queue_is_congested() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, bounds=Bounds(pending_messages=4)) as it:
        client = await it.client()
        await client.publish("q", b"0")
        store.script.add("append", gate)
        client.say(Publish(11, "q", [message(), message()]), Publish(12, "q", [message()]))
        await blocked()
        assert client.socket.unread == []
        client.say(Publish(13, "q", [message()]), Publish(14, "other", [message()]))
        assert (await client.socket.hear_a(Published)).id == 14, "other queues go on"
        await blocked()
        assert client.socket.unread == []
        gate.released.set()
        assert [(await client.socket.hear_a(Published)).id for _ in range(3)] == [11, 12, 13]


async def test_a_queue_that_opens_slowly_holds_up_its_own_frames_only() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, limits=Limits(inflight_bytes=65_536)) as it:
        client = await it.client(producer="p")
        await it.queue("slow")
        sub = await client.subscribe("other")
        store.script.add("claim", gate)
        client.say(
            Publish(11, "slow", [message(b"1", seq=1)]),
            Subscribe(12, "slow", 10),
            Publish(13, "slow", [message(b"2", seq=2)]),
        )
        await gate.entered.wait()
        await client.publish("other", b"3")
        (delivered,) = (await client.socket.hear_a(Deliver)).messages
        assert delivered.receipt is not None
        client.say(Ack(sub, [delivered.receipt], 15))
        assert (await client.socket.hear_a(Done)).id == 15
        client.say(Publish(16, "slow", [message(b'"' + b"x" * 65_536 + b'"', seq=3)]))
        await blocked()
        reads = client.socket.reads
        client.say(Publish(17, "other", [message(b"4")]))
        await blocked()
        assert client.socket.reads == reads, "what is parked counts: no more is read"
        gate.released.set()
        published: list[int] = []
        bodies: list[bytes] = []
        while len(published) < 4 or len(bodies) < 4:
            frame = await client.socket.hear()
            if isinstance(frame, Published):
                published.append(frame.id)
            elif isinstance(frame, Deliver):
                bodies += [bytes(each.body) for each in frame.messages if each.body is not UNSET]
        assert [id for id in published if id != 17] == [11, 13, 16], "in the order sent"
        assert [body for body in bodies if body in (b"1", b"2")] == [b"1", b"2"]


@pytest.mark.parametrize("clean", [True, False])
async def test_what_waits_for_its_queue_when_the_client_leaves_was_sent(clean: bool) -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store) as it:
        client = await it.client()
        await it.queue("slow")
        store.script.add("claim", gate)
        client.say(Publish(11, "slow", [message()]), Publish(12, "slow", [message()]))
        await gate.entered.wait()
        (client.socket.leave if clean else client.socket.drop)()
        await blocked()
        gate.released.set()
        await client.gone.wait()
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "slow")).stored == 2


async def test_a_bug_while_a_frame_waits_ends_its_session_only() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client, other = await it.client(), await it.client()
        store.script.add("read_queue", fail(ZeroDivisionError("a bug")))
        client.say(Publish(11, "slow", [message()]))
        assert (await client.error()).code == "internal"
        await client.gone.wait()
        await other.publish("slow", b"1")


async def test_throttled_when_there_is_no_room_for_long() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, bounds=Bounds(pending_messages=4)) as it:
        client = await it.client()
        await client.publish("q", b"0")
        store.script.add("append", gate)
        client.say(Publish(11, "q", [message(), message()]), Publish(12, "q", [message()]))
        error = await client.error()
        assert (error.id, error.code, error.retry_ms) == (12, "throttled", 1_000)
        gate.released.set()
        assert (await client.socket.hear_a(Published)).id == 11


async def test_a_body_that_is_kept_does_not_keep_its_frame() -> None:
    async with rig() as it:
        client = await it.client()
        await it.queue("q")
        queue = await it.dispatcher.open(TENANT, "q")
        kept: list[Any] = []
        publish = runners_of(queue)[0].publish_soon

        def spy(messages: list[Any], *rest: Any) -> Any:
            kept.extend(messages)
            return publish(messages, *rest)

        runners_of(queue)[0].publish_soon = spy  # type: ignore[assignment,method-assign]
        await client.publish("q", b'"x"')
        assert type(kept[0].body) is bytes


async def test_latency_and_counts() -> None:
    async with rig() as it:
        client = await it.client()
        await client.publish("q", b"1", b"2")
        assert it.metrics.published == 2
        assert sum(it.metrics.publish_seconds.counts) == 1
        assert it.metrics.frames_in.counts == {"hello": 1, "publish": 1}
        assert it.metrics.frames_out.counts == {"welcome": 1, "published": 1}
