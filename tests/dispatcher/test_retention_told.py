"""What retention ends is told: in the log, in the counters, by `explain`."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import TENANT, Consumer, dispatching, memory_store, message
from tests.running import runners_of, stats_now

KEPT_MS = 60_000
BOUNDS = Bounds(bucket_ms=1_000, drained_buckets=0)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "retention_ms" in text]


async def test_the_log_says_it_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    async with dispatching(memory_store(), bounds=BOUNDS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(retention_ms=KEPT_MS))
        for _ in range(3):
            await dispatcher.publish(TENANT, "q", [message(b"1"), message(b"2")])
            await trio.sleep(5 * KEPT_MS / 1000)
        (line,) = told(caplog)
        assert line.startswith("queue q: 2 messages ended because nobody took them within")
        assert line.endswith("retention_ms (60000); retention_end is drop")
        await trio.sleep(3_600)
        await dispatcher.publish(TENANT, "q", [message(b"3")])
        await trio.sleep(5 * KEPT_MS / 1000)
        assert [text.split(":")[1].split()[0] for text in told(caplog)] == ["2", "5"]
        assert dispatcher.endings() == {"retention": 7}


async def test_explain_and_stats_tell_it_when_the_rows_are_gone() -> None:
    store = memory_store()
    async with dispatching(store, bounds=BOUNDS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(retention_ms=KEPT_MS, dedup_window_ms=0))
        published = await dispatcher.publish(TENANT, "q", [message(b"1")])
        await trio.sleep(5 * KEPT_MS / 1000)
        queue = await dispatcher.open(TENANT, "q")
        assert (await store.outline(runners_of(queue)[0].key)).buckets == []
        (id,) = published.ids
        assert id is not None
        found = await dispatcher.explain(TENANT, "q", id)
        assert (found.state, "retention_ms (60000)" in found.why) == ("expired", True)
        stats = await dispatcher.stats(TENANT, "q")
        assert (stats.expired, stats.retention) == (1, 1)


async def test_dead_letters_say_what_the_message_had() -> None:
    async with dispatching(memory_store(), bounds=BOUNDS) as dispatcher:
        config = QueueConfig(retention_ms=KEPT_MS, retention_end="dead_letter")
        await dispatcher.create(TENANT, "q", config)
        published = await dispatcher.publish(TENANT, "q", [message(b"1")])
        await trio.sleep(5 * KEPT_MS / 1000)
        page = await dispatcher.peek(TENANT, "q.dead", 10)
        (found,) = page.messages
        assert found.message.dead is not None
        dead = found.message.dead
        assert (dead.cause, dead.queue, [dead.id]) == ("expired", "q", published.ids)


async def test_a_nack_may_not_wait_for_longer_than_messages_are_kept() -> None:
    async with dispatching(memory_store()) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(retention_ms=KEPT_MS))
        await dispatcher.publish(TENANT, "q", [message(b"1")])
        queue = await dispatcher.open(TENANT, "q")
        (runner,) = runners_of(queue)
        consumer = Consumer(runner)
        await consumer.got(1)
        with pytest.raises(BadRequest, match=r"delay_ms is 60001.*retention_ms \(60000\)"):
            await consumer.nack(delay_ms=KEPT_MS + 1)
        assert stats_now(queue).leased == 1, "nothing changed"
        await consumer.nack(delay_ms=KEPT_MS)
        assert stats_now(queue).retrying == 1
