"""A queue of several shards, used as one."""

import pytest

from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.ident import parse_id
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.interface import StoreRefused, StoreUnknown
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    ScriptedStore,
    blocked,
    dispatching,
    fail,
    message,
    numbered,
    rig,
)
from tests.running import runners_of, stats_now


async def test_messages_go_to_their_shards_and_answers_come_back_in_place() -> None:
    async with rig(shards=4) as r:
        assert len(runners_of(r.queue)) == 4
        messages = [message(b"%d" % n, key=f"k{n % 20}") for n in range(100)]
        publication = await r.queue.publish(messages)
        assert not publication.failed
        places = [parse_id(id) for id in publication.ids if id]
        assert len(places) == 100
        assert {place.shard for place in places} == {0, 1, 2, 3}
        for n in range(20):  # a key has one shard, and an order in it
            mine = places[n::20]
            assert len({place.shard for place in mine}) == 1
            assert mine == sorted(mine, key=lambda place: place.seq)
        consumers = [Consumer(runner, acking=True) for runner in runners_of(r.queue)]
        await consumers[0].until(lambda: sum(len(c.bodies) for c in consumers) >= 20)
        await blocked()
        assert sorted(b for c in consumers for b in c.bodies) == sorted(m.body for m in messages)


async def test_statistics_and_purges_are_of_all_shards() -> None:
    async with rig(shards=3) as r:
        await r.queue.publish([message(key=f"k{n}") for n in range(30)])
        stats = stats_now(r.queue)
        assert (stats.stored, stats.ready, stats.oldest_at) == (30, 30, message().published_at)
        await r.dispatcher.purge(TENANT, "q")
        stats = await r.dispatcher.stats(TENANT, "q")
        assert (stats.stored, stats.purged, stats.oldest_at) == (0, 30, None)


async def test_duplicates_and_failures_keep_their_indexes() -> None:
    async with rig(shards=4, max_message_bytes=10) as r:
        first = await r.queue.publish([message(dedup=f"d{n}") for n in range(4)])
        mixed = [
            message(b"x" * 11, key="big"),
            message(dedup="d2"),
            message(b"new"),
            message(dedup="d0"),
            message(b"y" * 11, key="too"),
        ]
        second = await r.queue.publish(mixed, [4, 4, 7, 4, 4])
        assert second.duplicates == [1, 3]
        assert (second.ids[1], second.ids[3]) == (first.ids[2], first.ids[0])
        assert sorted(second.failed) == [0, 4]
        assert {error.code for error in second.failed.values()} == {"too_large"}
        assert second.ids[0] is second.ids[4] is None
        assert second.ids[2] is not None
        assert parse_id(second.ids[2]).lane == 7


async def test_a_shard_that_stops_fails_its_own_messages_only() -> None:
    store = ScriptedStore()
    async with rig(store, shards=2) as r:
        sick = runners_of(r.queue)[0].key
        healthy = store.append

        async def append(key: object, *args: object) -> None:
            if key == sick:
                raise StoreUnknown("?")
            await healthy(key, *args)  # type: ignore[arg-type]

        store.append = append  # type: ignore[method-assign, assignment]
        messages = [message(key=f"k{n}") for n in range(20)]
        publication = await r.queue.publish(messages)
        assert publication.failed
        assert {error.code for error in publication.failed.values()} == {"unavailable"}
        for index, id in enumerate(publication.ids):
            assert (id is None) == (index in publication.failed)
        stored = [id for id in publication.ids if id]
        assert stored
        assert {parse_id(id).shard for id in stored} == {1}
        assert runners_of(r.queue)[0].stopped_by is Stop.UNDECIDED
        assert not r.queue.running
        store.append = healthy  # type: ignore[method-assign]
        await r.reopen()
        assert not (await r.queue.publish(messages)).failed


async def test_a_publish_to_a_queue_whose_shards_have_stopped_is_answered_too() -> None:
    async with rig(shards=2) as r:
        await runners_of(r.queue)[0].close()
        messages = [message(key=f"k{n}") for n in range(20)]
        answers: list[Publication] = []
        r.queue.publish_soon(messages, answers.append)
        await blocked()
        assert 0 < len(answers[0].failed) < 20
        await runners_of(r.queue)[1].close()
        r.queue.publish_soon(messages, answers.append)
        assert len(answers[1].failed) == 20


async def test_a_queue_opens_with_all_its_shards_or_not_at_all() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        store.script.add("outline", fail(StoreRefused("no")))
        row = await dispatcher.create(TENANT, "q")
        assert row.config.shards == 1
        with pytest.raises(Exception, match="could not be opened"):
            await dispatcher.open(TENANT, "q")
        assert (await dispatcher.open(TENANT, "q")).running


async def test_one_of_many_that_can_not_be_opened_is_said() -> None:
    store = ScriptedStore()
    async with rig(store, shards=3) as r:
        for runner in runners_of(r.queue):
            await runner.close()
        store.script.add("outline", fail(StoreRefused("no")))
        with pytest.raises(Exception, match="could not be opened"):
            await r.dispatcher.open(TENANT, "q")
        assert (await r.dispatcher.open(TENANT, "q")).running


async def test_many_publishes_under_way_without_a_task_each() -> None:
    async with rig() as r:
        answers: list[Publication] = []
        for number in range(100):
            r.queue.publish_soon(numbered(2, number), answers.append)
        await blocked()
        assert len(answers) == 100
        assert all(None not in publication.ids for publication in answers)
