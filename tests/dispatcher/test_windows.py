"""Many open queues with much in them: their windows keep to what is configured for all of them."""

from __future__ import annotations

import pytest
import trio

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.engine import Engine
from pushlane_storage.bucket import ShardKey
from tests.dispatcher.rig import TENANT, Consumer, dispatching, message
from tests.running import runners_of

SETTINGS = Settings(open_shards=20, windows_bytes=200_000)
BOUNDS = Bounds(window_bytes=50_000, segment_messages=5)
SIZE = 1_000


async def fill(dispatcher: Dispatcher, name: str, count: int) -> OpenQueue:
    queue = await dispatcher.open(TENANT, name, create=True)
    for _ in range(count // 10):
        await queue.publish([message(b"x" * SIZE) for _ in range(10)])
    return queue


def test_too_little_for_so_many_shards() -> None:
    with pytest.raises(ValueError, match="windows_bytes is 1000, too little for open_shards = 20"):
        Settings(open_shards=20, windows_bytes=1_000)


async def test_they_keep_to_it_and_others_are_served() -> None:
    async with dispatching(settings=SETTINGS, bounds=BOUNDS) as dispatcher:
        queues = [await fill(dispatcher, f"q{n}", 100) for n in range(15)]
        used = dispatcher.window_numbers()["bytes"]
        assert 100_000 <= used <= 200_000 + 15 * (SIZE + 500)
        for queue in reversed(queues):  # those that came last have little in memory
            consumer = Consumer(runners_of(queue)[0], credit=10, acking=True)
            assert len(await consumer.got(100)) == 100
        await trio.sleep(1)
        assert dispatcher.window_numbers()["bytes"] == 0


async def test_who_had_little_hears_of_room_and_who_closes_gives_it_back() -> None:
    async with dispatching(settings=SETTINGS, bounds=BOUNDS) as dispatcher:
        large = [await fill(dispatcher, f"q{n}", 100) for n in range(3)]
        small = await fill(dispatcher, "small", 100)
        used = dispatcher.window_numbers()["bytes"]
        for queue in large:
            await dispatcher.delete(TENANT, queue.row.name)
        await trio.sleep(1)
        numbers = dispatcher.window_numbers()
        assert small.running
        assert 40_000 < numbers["bytes"] < used, "it has read on by itself"


async def test_only_those_that_had_little_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[ShardKey] = []
    wake = Engine.wake

    def noted(self: Engine) -> None:
        woken.append(self.shard.key)
        wake(self)

    async with dispatching(settings=SETTINGS, bounds=BOUNDS) as dispatcher:
        small = [await fill(dispatcher, f"small{n}", 10) for n in range(3)]
        large = [await fill(dispatcher, f"q{n}", 100) for n in range(3)]
        await trio.sleep(1)
        monkeypatch.setattr(Engine, "wake", noted)
        await dispatcher.delete(TENANT, "q0")
        woken.clear()
        await trio.sleep(1)
        assert runners_of(large[2])[0].key in woken
        assert not {runners_of(queue)[0].key for queue in small} & set(woken)
