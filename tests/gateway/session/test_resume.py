"""Resume: a connection drops, the session waits, and goes on with another connection."""

from __future__ import annotations

import pytest
import trio
from msgspec import structs

from pushlane.wire.frames import (
    Ack,
    Credit,
    Deliver,
    Done,
    Ended,
    Hello,
    LeaseLostFrame,
    Publish,
    Resume,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from pushlane.wire.limits import Limits
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule
from pushlane_gateway.session.session import reference
from pushlane_leases.memory import LeaseTable, MemoryLeases
from tests.dispatcher.rig import Gate, ScriptedStore
from tests.gateway.session.rig import TENANT, Client, Rig, blocked, known, message, rig

ALL = (Rule("admin", "*"),)


async def consumer(it: Rig, count: int = 3, **options: object) -> tuple[Client, str, list[str]]:
    """A client with messages of sub 1, its session, and their receipts."""
    client = it.connect()
    session = (await client.hello()).session
    await client.subscribe("q", **options)  # type: ignore[arg-type]
    await client.publish("q", *[b"%d" % n for n in range(count)])
    return client, session, [found.receipt or "" for found in await client.deliveries(count)]


async def test_what_is_listed_stays_and_what_is_not_comes_again() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        await client.drop()
        await trio.sleep(10)
        again = it.connect()
        welcome = await again.resume(session, {"1": [receipts[1]]})
        assert (welcome.resumed, welcome.session, welcome.lost) == (True, session, {})
        messages = await again.deliveries(2)
        assert [found.receipt for found in messages] == [receipts[0], receipts[2]]
        assert [found.attempt for found in messages] == [1, 1]
        assert messages[0].lease_ms == 20_000
        assert (await again.ack(1, *receipts)) == Done(1)
        assert it.metrics.redelivered == 2
        assert it.metrics.resumes.counts == {"resumed": 1}


async def test_subs_keep_their_numbers_options_and_credit() -> None:
    async with rig() as it:
        client = it.connect()
        session = (await client.hello()).session
        await client.subscribe("a", credit=1)
        await client.subscribe("b", credit=2, start="explicit")
        await client.drop()
        again = it.connect()
        await again.resume(session)
        await again.publish("b", b"1", b"2", b"3")
        delivered = await again.socket.hear_a(Deliver)
        assert (delivered.sub, len(delivered.messages)) == (2, 2)
        assert await again.subscribe("c") == 3


async def test_what_was_lost_meanwhile_is_in_the_welcome() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it, lease_ms=5_000)
        await client.drop()
        other = await it.client()
        await other.subscribe("q")
        await trio.sleep(10)
        again = it.connect()
        welcome = await again.resume(session, {"1": receipts, "9": ["p.7"]})
        run = f"{receipts[0]}-{receipts[-1].rpartition('.')[2]}"
        assert welcome.lost == {"1": [run], "9": ["p.7"]}
        assert welcome.resumed
        assert len(await other.deliveries(3)) == 3


async def test_what_was_acked_without_an_answer_is_a_duplicate() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        client.say(Ack(1, [receipts[0]], 50))
        await blocked()
        await client.drop()
        again = it.connect()
        welcome = await again.resume(session, {"1": receipts})
        assert welcome.lost == {}
        assert await again.ack(1, receipts[0]) == Done(1, duplicate=[receipts[0]])


async def test_too_late() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        await client.drop()
        assert len(it.sessions) == 1
        await trio.sleep(30.001)
        assert len(it.sessions) == 0
        again = it.connect()
        welcome = await again.resume(session, {"1": receipts})
        assert welcome.resumed is False
        assert welcome.session != session
        assert welcome.lost == {}
        assert it.metrics.resumes.counts == {"unknown": 1}
        await again.subscribe("q")
        found = await again.deliveries(3)
        assert [message.attempt for message in found] == [2, 2, 2]


async def test_without_resume_time_it_ends_at_once() -> None:
    async with rig(limits=Limits(resume_ms=0)) as it:
        client, session, _ = await consumer(it)
        await client.drop()
        await trio.sleep(0.01)
        assert (await it.connect().resume(session)).resumed is False


async def test_a_close_with_1000_ends_it_at_once() -> None:
    async with rig() as it:
        client, session, _ = await consumer(it)
        other = await it.client()
        await other.subscribe("q")
        await client.leave()
        assert len(it.sessions) == 1
        found = await other.deliveries(3)
        assert trio.current_time() < 2
        assert [message.attempt for message in found] == [2, 2, 2]
        assert (await it.connect().resume(session)).resumed is False


async def test_a_client_that_comes_back_before_its_drop_was_seen() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        again = it.connect()
        assert (await again.resume(session, {"1": receipts})).resumed
        assert await client.socket.until_closed() == (4001, "taken_over")
        await client.gone.wait()
        assert len(it.sessions) == 1
        await again.publish("q", b"0")
        assert len(await again.deliver()) == 1
        assert await again.ack(1, *receipts) == Done(2)


@pytest.mark.parametrize("unanswered", [1, 1024])
async def test_frames_of_the_older_socket_no_longer_count(unanswered: int) -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, limits=Limits(unanswered=unanswered)) as it:
        client = it.connect()
        session = (await client.hello()).session
        await it.queue("other")
        store.script.add("read_queue", gate)
        client.say(Subscribe(1, "slow", 1), Publish(2, "other", [message()]))
        await gate.entered.wait()
        again = it.connect()
        await again.resume(session)
        gate.released.set()
        with trio.fail_after(60):
            await client.gone.wait()
        assert await again.subscribe("q") == 1
        assert (await it.dispatcher.stats(TENANT, "other")).stored == 0


async def test_answers_due_to_the_older_socket_go_nowhere() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store) as it:
        client = it.connect()
        session = (await client.hello(producer="p")).session
        await client.publish("q", b"0", seq=1)
        store.script.add("append", gate)
        client.say(Publish(2, "q", [message(b"1", seq=2)]))
        await gate.entered.wait()
        await client.drop()
        again = it.connect()
        await again.resume(session)
        gate.released.set()
        await blocked()
        assert again.socket.unread == []
        assert (await again.publish("q", b"1", seq=2)).duplicates == [0]


ANN = Identity("ann", "default", ALL, key="k1", subject="user-7")
OTHERS = {
    "another subject": structs.replace(ANN, subject="user-8"),
    "no subject": structs.replace(ANN, subject=None),
    "another key of the same name": structs.replace(ANN, key="k2"),
    "another tenant": structs.replace(ANN, tenant="other"),
    "nobody's key": structs.replace(ANN, key=None),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_only_the_same_party_takes_it_up(other: str) -> None:
    async with rig(authenticate=known(ann=ANN, thief=OTHERS[other])) as it:
        client = it.connect()
        session = (await client.hello(token="ann")).session
        thief = it.connect()
        welcome = await thief.hello(token="thief", resume=Resume(session))
        assert welcome.resumed is False
        await client.publish("q", b"1")
        assert (await it.connect().hello(token="ann", resume=Resume(session))).resumed


async def test_a_renewed_token_goes_on() -> None:
    renewed = structs.replace(ANN, expires_at=10**15)
    async with rig(authenticate=known(ann=ANN, renewed=renewed)) as it:
        session = (await it.connect().hello(token="ann")).session
        assert (await it.connect().hello(token="renewed", resume=Resume(session))).resumed


async def test_a_closed_sub_is_nothing_for_who_may_not_read_its_queue() -> None:
    publisher = structs.replace(ANN, rules=(Rule("publish", "q"),))
    async with rig(authenticate=known(ann=ANN, publisher=publisher)) as it:
        client = it.connect()
        session = (await client.hello(token="ann")).session
        await client.subscribe("q")
        await client.publish("q", b"1")
        await client.deliver()
        client.say(Unsubscribe(50, 1))
        await client.socket.hear_a(Done)
        await client.drop()
        again = it.connect()
        assert (await again.hello(token="publisher", resume=Resume(session))).resumed
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (1, "forbidden")
        await again.silence(1)


async def test_nobody_else_sees_its_id() -> None:
    async with rig() as it:
        client, session, _ = await consumer(it, 1)
        found = await it.dispatcher.consumers(TENANT, "q")
        assert [one.session for one in found] == [reference(session)]
        (id,) = (await client.publish("q", b"2")).ids
        await client.deliver()
        held = await it.dispatcher.explain(TENANT, "q", str(id))
        assert held.session == reference(session)
        assert session not in reference(session)


async def test_its_client_is_shown_by_the_name_it_gave() -> None:
    async with rig() as it:
        client = it.connect()
        await client.hello(client="invoices 2")
        await client.subscribe("q")
        (id,) = (await client.publish("q", b"1")).ids
        await client.deliver()
        assert [one.client for one in await it.dispatcher.consumers(TENANT, "q")] == ["invoices 2"]
        assert (await it.dispatcher.explain(TENANT, "q", str(id))).client == "invoices 2"


async def test_the_lease_cache_has_no_id_of_a_session() -> None:
    table = LeaseTable()
    async with rig(leases=MemoryLeases(table)) as it:
        _, session, _ = await consumer(it)
        (shard,) = table._shards.values()
        assert {run.session for run in shard} == {reference(session)}


async def test_rights_that_were_withdrawn_meanwhile() -> None:
    tokens = {"ann": Identity("ann", "default", ALL)}

    def authenticate(token: str | None) -> Identity:
        return tokens[token or ""]

    async with rig(authenticate=authenticate) as it:
        client = it.connect()
        session = (await client.hello(token="ann")).session
        await client.subscribe("a")
        await client.subscribe("b")
        await client.publish("a", b"1")
        await client.deliver()
        await client.drop()
        tokens["ann"] = Identity("ann", "default", (Rule("consume", "b"),))
        again = it.connect()
        assert (await again.hello(token="ann", resume=Resume(session))).resumed
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (1, "forbidden")
        again.say(Publish(1, "a", [message()]))
        assert (await again.error()).code == "forbidden"
        other = await it.client(token="ann")
        await other.subscribe("b")


async def test_a_queue_that_was_deleted_meanwhile() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        await client.drop()
        await it.dispatcher.delete(TENANT, "q")
        again = it.connect()
        welcome = await again.resume(session, {"1": receipts[:1]})
        assert welcome.lost == {"1": receipts[:1]}
        ended = await again.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (1, "not_found")


async def test_who_has_not_heard_that_a_sub_ended_is_told_again() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it)
        await it.dispatcher.delete(TENANT, "q")
        await client.socket.hear_a(Ended)
        for _ in range(2):  # the frame was lost with the connection, and once more
            await client.drop()
            client = it.connect()
            welcome = await client.resume(session, {"1": receipts[:1]})
            assert welcome.lost == {"1": receipts[:1]}
            ended = await client.socket.hear_a(Ended)
            assert (ended.sub, ended.code) == (1, "not_found")
        await client.drop()
        client = it.connect()
        assert (await client.resume(session, {})).resumed
        await client.silence(1)


async def test_not_all_that_ended_is_remembered() -> None:
    async with rig(limits=Limits(subs=2)) as it:
        client = it.connect()
        session = (await client.hello()).session
        for queue in ("a", "b", "c"):
            await client.subscribe(queue)
            await it.dispatcher.delete(TENANT, queue)
            await client.socket.hear_a(Ended)
        await client.drop()
        again = it.connect()
        await again.resume(session, {"1": [], "2": []})
        assert (await again.socket.hear_a(Ended)).sub == 2
        await again.silence(1)


async def test_unsubscribed_subs_resume_too() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it, 2)
        client.say(Unsubscribe(50, 1))
        await client.socket.hear_a(Done)
        await client.drop()
        again = it.connect()
        await again.resume(session, {"1": receipts})
        await again.publish("q", b"0")
        await again.silence(1)
        assert (await again.ack(1, *receipts)).lease_lost == []


async def test_it_may_drop_and_resume_many_times() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it, lease_ms=300_000)
        for _ in range(10):
            await client.drop()
            await trio.sleep(20)
            client = it.connect()
            assert (await client.resume(session, {"1": receipts})).resumed
        assert await client.ack(1, *receipts) == Done(1)
        assert len(it.sessions) == 1


async def test_a_new_producer_name_counts_from_the_resume_on() -> None:
    async with rig() as it:
        client = it.connect()
        session = (await client.hello(producer="a")).session
        await client.drop()
        client = it.connect()
        client.say(Hello(producer="b", resume=Resume(session)))
        await client.socket.hear_a(Welcome)
        await client.publish("q", b"1", seq=1)
        assert (await (await it.client(producer="b")).publish("q", b"1", seq=1)).duplicates == [0]


async def test_too_many_wait_and_the_one_that_waited_longest_ends() -> None:
    async with rig(detached=2) as it:
        sessions = []
        for queue in ("a", "b", "c"):
            client = it.connect()
            sessions.append((await client.hello()).session)
            await client.subscribe(queue)
            await client.publish(queue, b"1")
            await client.deliver()
            await client.drop()
        assert (len(it.sessions), it.limit("detached")) == (2, 1)
        other = await it.client()
        await other.subscribe("a")
        assert (await other.deliver())[0].attempt == 2
        assert trio.current_time() < 5
        resumed = [(await it.connect().resume(session)).resumed for session in sessions]
        assert resumed == [False, True, True]


async def test_leases_run_on_while_it_is_away() -> None:
    async with rig() as it:
        client, session, receipts = await consumer(it, 1, lease_ms=25_000)
        await client.drop()
        await trio.sleep(20)
        again = it.connect()
        await again.resume(session, {"1": receipts})
        assert await again.socket.hear() == LeaseLostFrame(1, receipts)
        assert trio.current_time() == pytest.approx(25)


async def test_credit_of_0_survives() -> None:
    async with rig() as it:
        client = it.connect()
        session = (await client.hello()).session
        sub = await client.subscribe("q")
        client.say(Credit(sub, 0))
        await blocked()
        await client.drop()
        again = it.connect()
        await again.resume(session)
        await again.publish("q", b"1")
        await again.silence(1)
        again.say(Credit(sub, 1))
        assert len(await again.deliver()) == 1
