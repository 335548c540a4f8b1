"""A load balancer, as small as can be: one address for all servers of a cluster.

Each connection goes to a server that runs, in turn. When that dies the connection ends, and its
client finds another one by coming again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio

from tools.demo.gateway import HOST, Gateway

CHUNK = 1 << 16


class Balancer:
    def __init__(self, gateways: Sequence[Gateway], port: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self._gateways = gateways
        self._port = port
        self._turn = 0

    async def run(self, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED) -> None:
        await trio.serve_tcp(self._serve, self._port, host=HOST, task_status=task_status)

    async def _serve(self, client: trio.SocketStream) -> None:
        server = await self._connect()
        if server is None:
            return
        async with server, trio.open_nursery() as nursery:
            for source, target in ((client, server), (server, client)):
                nursery.start_soon(_pump, source, target, nursery.cancel_scope)

    async def _connect(self) -> trio.SocketStream | None:
        """None: no server can be reached."""
        for _ in self._gateways:
            gateway = self._gateways[self._turn % len(self._gateways)]
            self._turn += 1
            if gateway.is_running:
                with suppress(OSError):
                    return await trio.open_tcp_stream(HOST, gateway.port)
        return None


async def _pump(
    source: trio.SocketStream, target: trio.SocketStream, both: trio.CancelScope
) -> None:
    """Until either side has gone: then both ways end."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while data := await source.receive_some(CHUNK):
            await target.send_all(data)
    both.cancel()
