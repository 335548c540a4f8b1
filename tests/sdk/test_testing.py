"""`pushlane.testing.server`: a real server for as long as a block runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import pushlane
from pushlane import testing
from pushlane.wire import errors


def test_sync() -> None:
    server = testing.server(store="memory")
    with server as url:
        assert url.startswith("http://127.0.0.1:")
        assert Path(f"/proc/{server.pid}").exists() or os.name != "posix"
        asyncio.run(_publish(url))
        folder = Path(server._log).parent
        assert folder.exists()
    assert not folder.exists()


async def _publish(url: str) -> None:
    async with pushlane.connect(url) as client:
        assert await client.publish("q", 1)


async def test_async_in_any_loop() -> None:  # this suite's loop is trio's
    async with testing.server(store="memory") as url:
        assert url.startswith("http://127.0.0.1:")


def test_a_restart_has_the_same_port_and_store() -> None:
    server = testing.server()
    with server as url:
        asyncio.run(_publish(url))
        server.kill()
        assert server.start() == url
        assert asyncio.run(_receive(url)) == 1
        assert server.stop() == 0


async def _receive(url: str) -> object:
    async with pushlane.connect(url) as client:
        async with asyncio.timeout(10):
            message = await anext(await client.subscribe("q"))
        await message.ack()
        return message.body


def test_a_server_that_can_not_start_says_why() -> None:
    server = testing.server(store="nonsense:")
    with pytest.raises(testing.ServerFailed, match="ended with 2"), server:
        pass
    assert server._folder is None


def test_errors_are_exported_under_their_plain_names() -> None:
    assert pushlane.NotFound is errors.NotFound
