"""A plain HTTP/1.1 client over one connection, without any code of the SDK."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio

TIMEOUT_S = 70.0
"""Longer than the longest long poll."""
CHUNK = 1 << 16
BROKEN = (
    OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError,
    h11.RemoteProtocolError,
)  # fmt: skip


class Gone(Exception):
    """The connection broke: nobody knows whether the request was carried out."""


class Http:
    """One connection, opened when it is needed and again when it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stream: trio.SocketStream | None = None
        self._h11 = h11.Connection(h11.CLIENT)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of the answer. `Gone` when there is none."""
        try:
            with trio.fail_after(TIMEOUT_S):
                return await self._ask(method, path, body, headers or {})
        except BROKEN:
            await self.drop()
            raise Gone(f"{method} {path}") from None
        except BaseException:
            await self.drop()
            raise

    async def _ask(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, Any]:
        if self._stream is None:
            self._stream = await trio.open_tcp_stream("127.0.0.1", self._port)
            self._h11 = h11.Connection(h11.CLIENT)
        content = b"" if body is None else json.dumps(body).encode()
        fields = {"Host": "127.0.0.1", "Content-Length": str(len(content)), **headers}
        if body is not None:
            fields["Content-Type"] = "application/json"
        request = h11.Request(method=method, target=path, headers=list(fields.items()))
        data = self._h11.send(request) or b""
        data += self._h11.send(h11.Data(data=content)) or b""
        data += self._h11.send(h11.EndOfMessage()) or b""
        stream = self._stream
        await stream.send_all(data)
        return await self._answer(stream)

    async def _answer(self, stream: trio.SocketStream) -> tuple[int, Any]:
        status, content = 0, b""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                self._h11.receive_data(await stream.receive_some(CHUNK))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                raise trio.BrokenResourceError
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        else:
            await self.drop()
        return status, json.loads(content) if content[:1] in (b"{", b"[") else None

    async def drop(self) -> None:
        """Break the connection, whatever is under way."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def __aenter__(self) -> Http:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()
