"""A node by its URLs: what can't be opened is told in a sentence, and the store closes last."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pushlane.wire.limits import Limits
from pushlane_dispatcher.node import CannotOpen, QueueConfig, StoreLimits, open_node
from pushlane_dispatcher.port import Message
from pushlane_storage.sqlite.limits import Limits as SqliteLimits
from tests.dispatcher.rig import Consumer
from tests.running import runners_of
from tools.services.ports import free_port


async def test_a_node_in_memory() -> None:
    async with open_node("memory:") as dispatcher:
        await dispatcher.create("default", "q", QueueConfig())
        answer = await dispatcher.publish("default", "q", [Message(b"1", 0)])
        assert answer.ids[0] is not None
        assert dispatcher.leases is not None


@pytest.mark.parametrize("sqlite", [None, SqliteLimits()])
def test_what_is_stored_is_there_again(tmp_path: Path, sqlite: SqliteLimits | None) -> None:
    url = f"sqlite:{tmp_path / 'data'}"

    async def main() -> None:
        async with open_node(url, stores=StoreLimits(sqlite)) as dispatcher:
            await dispatcher.publish("default", "q", [Message(b"1", 0)], create=True)
        async with open_node(url, stores=StoreLimits(sqlite)) as dispatcher:
            assert (await dispatcher.stats("default", "q")).stored == 1

    trio.run(main)  # on the real clock: the store's threads take real time


@pytest.mark.parametrize(
    ("store", "leases", "reason"),
    [
        ("nonsense", "memory:", "bad store URL 'nonsense'"),
        ("mongo:x", "memory:", "unknown scheme 'mongo'"),
        ("sqlite:", "memory:", "a folder comes after sqlite:"),
        ("memory:", "mongo://x", "bad lease URL 'mongo://x': known are memory:, redis://"),
        ("memory:", "redis:x", "bad lease URL 'redis:x'"),
        ("memory:", "redis://u:secret@x/one", r"bad Redis URL redis://x/one: '/one' is not"),
        ("nonsense", "redis://x", "bad store URL 'nonsense'"),
        ("memory:", "memory", "bad lease URL 'memory'"),
        ("memory:", "memory:x", "bad lease URL 'memory:x'"),
        ("sqlite:/dev/null/x", "memory:", "can't be used"),
    ],
)
async def test_what_cannot_be_opened(store: str, leases: str, reason: str) -> None:
    with pytest.raises(CannotOpen, match=reason):
        async with open_node(store, leases):
            raise AssertionError("opened")


async def test_a_folder_that_is_in_use(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}"
    async with open_node(url):
        with pytest.raises(CannotOpen, match="is in use by process"):
            async with open_node(url):
                raise AssertionError("opened")


async def test_the_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}"
    with pytest.raises(RuntimeError, match="a bug"):
        async with open_node(url):
            raise RuntimeError("a bug")
    with trio.move_on_after(60) as scope:
        async with open_node(url):
            scope.cancel()
            await trio.sleep_forever()
    async with open_node(url):
        pass


async def test_credit_as_the_limits_have_it() -> None:
    async with open_node("memory:", limits=Limits(credit=20_000)) as dispatcher:
        queue = await dispatcher.open("default", "q", create=True)
        assert Consumer(runners_of(queue)[0], 20_000).sub.credit == 20_000


def test_a_redis_that_is_not_there_keeps_nothing_from_starting() -> None:
    async def main() -> None:
        async with open_node("memory:", f"redis://127.0.0.1:{free_port()}") as dispatcher:
            await dispatcher.publish("default", "q", [Message(b"1", 0)], create=True)
            assert (await dispatcher.stats("default", "q")).stored == 1
            assert dispatcher.leases is not None
            assert dispatcher.leases.failures > 0

    trio.run(main)  # on the real clock: the cache's thread takes real time
