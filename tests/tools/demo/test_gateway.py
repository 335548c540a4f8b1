"""The server of the demo: killed by anybody, it comes back where it was."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trio

from tools.demo.gateway import HOST, Gateway
from tools.services.ports import answers, free_port
from tools.services.process import CannotStart

PATIENCE_SECONDS = 120


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(free_port(), ["--data", str(folder / "data")], folder / "log")
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run)
            yield gateway
            nursery.cancel_scope.cancel()


async def call(gateway: Gateway, path: str, body: object = None) -> Any:
    def run() -> Any:
        headers = {"content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(gateway.url + path, data, headers), timeout=60) as answer:
            return json.load(answer)

    return await trio.to_thread.run_sync(run)


async def test_a_restart_keeps_address_and_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        first = gateway.pid
        await call(gateway, "/v1/queues/orders/messages", {"messages": [{"body": 1}]})
        await gateway.restart()
        assert (gateway.starts, gateway.is_running) == (2, True)
        assert gateway.pid != first
        assert (await call(gateway, "/v1/queues/orders/stats"))["ready"] == 1
    assert not answers(HOST, gateway.port)


async def test_a_kill_from_elsewhere_is_mended(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        assert gateway.pid is not None
        os.kill(gateway.pid, signal.SIGKILL)
        await gateway.started(2)
        assert gateway.is_running


async def test_what_it_said_is_told_when_it_cant_start(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        options = ["--data", str(tmp_path / "data")]
        gateway = Gateway(other.getsockname()[1], options, tmp_path / "log")
        with trio.fail_after(PATIENCE_SECONDS), pytest.raises(CannotStart, match="can't listen on"):
            await gateway.run()
    assert not gateway.is_running
