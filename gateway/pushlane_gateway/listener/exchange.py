"""One HTTP request and its answer: h11 on one side, an ASGI app on the other.

Nothing is read ahead of the app but what came with the head: a body that nobody asks for stays in
the kernel. When the body has been read, `receive` waits for the client to go away, and says
`http.disconnect` as soon as it does; requests sent ahead are kept, within `pipeline_bytes`. There
is no task for that: an app that doesn't ask pays nothing.

What is kept while a client is waited for (the head, what came of the body, what is left of the
answer) counts against the budget of those who are not authenticated. When the app says who asks
(the extension `pushlane.known`) a body counts against their share, until it has all of it. Beyond
that a request is refused, an answer cut off. Something wrong
with the body (too large, badly chunked, stalled, slow) cancels the app and is answered here; an app
that already began its answer is cut off. A send to a client that has gone raises LinkLost, an
OSError, so that no app can go on sending for ever. We call ourselves ASGI 2.3, because from 2.4 on
Starlette no longer listens for the disconnect while it streams.

A read may have thousands of tiny chunks: they are taken `CHUNKS` at a time, with others' turns
between, and of those whom nobody knows they have a rate, as tiny frames do.

The connection ends after a request with a chunked body: trailers are where h11 is lenient.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message, Scope

from pushlane_dispatcher.port import Claims
from pushlane_gateway.listener.decoder import TINY_BYTES
from pushlane_gateway.listener.head import header
from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import Link, LinkLost, Stalled
from pushlane_gateway.listener.refusal import INTERNAL, Refusal

log = logging.getLogger(__name__)

KNOWN = "pushlane.known"
"""Our extension of ASGI: an app calls its `tell` with their claims when it knows who asks."""
CHUNKS = 2
"""Of a body that are taken before others have their turn: 50 microseconds of work. Of fifty who
flood together each has its turn before a neighbour has one."""
JOINED_BYTES = 16 * 1024
"""An answer up to this is one write: to copy it costs less than another call of the system. A
larger one is never copied: many clients may be slow to take the same page."""
GONE: Message = {"type": "http.disconnect"}

_CONTINUE = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")


class Exchange:
    def __init__(
        self,
        link: Link,
        hub: Hub,
        request: h11.Request,
        parser: h11.Connection,
        ahead: bytearray,
        hold: Callable[[int], None],
        know: Callable[[Claims], None],
    ) -> None:
        """`hold` hears how many bytes are kept for the client, `know` whose they are."""
        self._link = link
        self._hub = hub
        self._request = request
        self._parser = parser
        self._ahead = ahead
        """What the client sent behind this request."""
        self._hold = hold
        self._tell = know
        self._known = False
        self._head_bytes = sum(len(name) + len(value) for name, value in request.headers)
        self._head_bytes += len(request.target)
        self._body: deque[bytes] = deque()
        self._body_bytes = 0
        self._body_since: float | None = None
        """When the app began to wait for it."""
        self._body_over = False
        self._unparsed = False
        """The parser may have more of it."""
        self._chunk_bytes = 0
        """What came of the chunk that is not over."""
        self._tiny = 0.0
        """Tiny chunks that count: time lowers it …"""
        self._tiny_at = 0.0
        """… and did so at this one."""
        self._body_told = False
        self._start: Message | None = None
        self._started = False
        self._done = False
        self._gone = False
        self._refusal: Refusal | None = None
        self._reading = trio.Lock()
        self._running = trio.CancelScope()

    async def run(self, app: ASGIApp) -> bool:
        """Have the app answer; whether the connection can go on. Raises Refusal, LinkLost."""
        self._judge_length()
        if self._ahead:
            self._parser.receive_data(bytes(self._ahead))
            self._ahead.clear()
        self._parse()
        self._hub.counters.requests += 1
        with self._running:
            await self._call(app)
        if self._refusal is not None and not self._started:
            raise self._refusal
        if not self._done:
            raise LinkLost("the answer is not complete")
        if self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE:
            return False
        self._ahead[:0] = self._parser.trailing_data[0]
        self._hold(0)
        return True

    async def _call(self, app: ASGIApp) -> None:
        try:
            await app(self._scope(), self._receive, self._send)
        except Exception:
            if self._gone or self._refusal is not None:
                return  # whatever the app made of it
            self._fail("the app failed", exc_info=True)
        else:
            if not self._done and not self._gone and self._refusal is None:
                self._fail("the app left without a whole answer", exc_info=False)

    def _fail(self, what: str, *, exc_info: bool) -> None:
        self._hub.counters.failures += 1
        path = self._request.target.partition(b"?")[0].decode("latin-1")
        log.error("%s %s: %s", self._request.method.decode(), path, what, exc_info=exc_info)
        self._refusal = INTERNAL

    def _scope(self) -> Scope:
        target, _, query = self._request.target.partition(b"?")
        host, _, port = self._link.peer.rpartition(":")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._request.http_version.decode(),
            "method": self._request.method.decode(),
            "scheme": "https" if self._link.secure else "http",
            "path": unquote(target.decode("latin-1")),
            "raw_path": target,
            "query_string": query,
            "root_path": "",
            "headers": list(self._request.headers),
            "client": (host.strip("[]"), int(port)) if host else None,
            "server": None,
            "state": {},
            "extensions": {KNOWN: {"tell": self._know}},
        }

    def _know(self, claims: Claims = ()) -> None:
        """The app knows who asks: what they send is theirs to answer for."""
        self._known = True
        self._tell(claims)

    def _keep(self, size: int) -> None:
        """So many bytes wait for the client, besides what it sent ahead.

        Those whom nobody knows answer for the head, too.
        """
        size += len(self._ahead)
        if not self._known:
            size += self._head_bytes + len(self._parser.trailing_data[0])
        self._hold(size)

    # Reading

    async def _receive(self) -> Message:
        try:
            self._reading.acquire_nowait()
        except trio.WouldBlock:
            await self._reading.acquire()
        try:
            return await self._next_message()
        finally:
            self._reading.release()

    async def _next_message(self) -> Message:
        if self._body_told or self._gone:
            await self._await_disconnect()
            return GONE
        while not self._body and not self._body_over:
            if not await self._read_body():
                return GONE
        body = b"".join(self._body)
        self._body.clear()
        self._body_told = self._body_over
        return {"type": "http.request", "body": body, "more_body": not self._body_over}

    async def _read_body(self) -> bool:
        """Read some more of it; False when there will be no more."""
        try:
            if self._parser.they_are_waiting_for_100_continue:
                await self._write(self._parser.send(_CONTINUE))
            if self._unparsed:
                await trio.lowlevel.checkpoint()  # there is much: others have their turn
            else:
                data = await self._read_in_time()
                if not data:
                    self._gone = True
                    return False
                self._parser.receive_data(data)
            self._parse()
        except Refusal as refusal:
            self._refusal = refusal
            self._running.cancel()
            await trio.lowlevel.checkpoint()
            return False
        except LinkLost:
            return False
        return True

    async def _read_in_time(self) -> bytes | None:
        """Raises Refusal: a body that drips would hold what it holds for ever."""
        settings, counters, now = self._hub.settings, self._hub.counters, trio.current_time()
        if self._body_since is None:
            self._body_since = now
        if not self._started:  # else it is too late to say that there is too much
            self._keep(self._body_bytes)
        stall = settings.body_stall_ms / 1000
        earned = stall + self._body_bytes / settings.body_rate
        until = self._body_since + min(earned, settings.body_ms / 1000)
        with trio.CancelScope(deadline=min(until, now + stall)) as scope:
            return await self._link.receive()
        assert scope.cancelled_caught
        if until < now + stall:
            counters.slow_bodies += 1
        else:
            counters.stalled_bodies += 1
        raise Refusal(408, "the rest of the body did not come in time")

    def _parse(self) -> None:
        """Take some of what has come of the body. Raises Refusal."""
        self._unparsed = True
        for _ in range(CHUNKS):
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                raise Refusal(400, "malformed body") from None
            if type(event) is h11.Data:
                self._take(event)
            else:
                self._unparsed = False
                self._body_over = self._body_over or type(event) is h11.EndOfMessage
                break
        if self._body_over:
            self._hold(0)

    def _take(self, event: h11.Data) -> None:
        size = len(event.data)
        self._body_bytes += size
        if self._body_bytes > self._hub.settings.body_bytes:
            raise self._too_large()
        self._body.append(bytes(event.data))
        self._chunk_bytes += size
        if event.chunk_end:
            if self._chunk_bytes < TINY_BYTES and not self._known:
                self._count_tiny()
            self._chunk_bytes = 0

    def _count_tiny(self) -> None:
        settings, now = self._hub.settings, trio.current_time()
        earned = (now - self._tiny_at) * settings.tiny_frames_rate
        self._tiny, self._tiny_at = max(0.0, self._tiny - earned) + 1, now
        if self._tiny > settings.tiny_frames:
            self._hub.counters.floods += 1
            raise Refusal(429, "too many tiny chunks: send larger ones", code="throttled")

    def _judge_length(self) -> None:
        lengths = header(self._request, b"content-length")
        if lengths and int(lengths[0]) > self._hub.settings.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        most = self._hub.settings.body_bytes
        return Refusal(413, f"a body of more than {most} bytes", code="too_large")

    async def _await_disconnect(self) -> None:
        """Wait until the client goes away; what it sends meanwhile is for later."""
        while not self._gone and not self._done:
            data = self._link.receive_now()
            if data is None:
                if not self._started:
                    self._keep(0)
                self._gone = not await self._link.wait_readable()
            elif not data:
                self._gone = True
            else:
                self._ahead += data
                if len(self._ahead) > self._hub.settings.pipeline_bytes:
                    if not self._started:
                        self._keep(0)
                    await trio.sleep_forever()

    # Answering

    async def _send(self, message: Message) -> None:
        if self._gone:
            raise LinkLost("the client has gone")
        if message["type"] == "http.response.start" and self._start is None:
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None and not self._done:
            await self._answer(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} makes no sense here")

    async def _answer(self, body: bytes, *, more: bool) -> None:
        out: list[bytes] = []
        if not self._started:
            out += self._encoded(self._response())
            self._started = True
            self._hold(0)
        if body and not self._without_body():
            out += self._encoded(h11.Data(data=body))
        if not more:
            out += self._encoded(h11.EndOfMessage())
            self._done = True
        if sum(map(len, out)) <= JOINED_BYTES:
            out = [b"".join(out)]
        for part in out:
            await self._write(part)

    def _encoded(self, event: h11.Event) -> list[bytes]:
        """What is to be written; the data of a body as they are, not as a copy."""
        return self._parser.send_with_data_passthrough(event) or []

    def _response(self) -> h11.Response:
        assert self._start is not None
        headers = [(bytes(name), bytes(value)) for name, value in self._start.get("headers", ())]
        if not any(name.lower() == b"date" for name, _ in headers):
            headers.append((b"date", formatdate(usegmt=True).encode()))
        chunked = header(self._request, b"transfer-encoding")
        if chunked or not self._body_over or self._hub.stopping:
            headers.append((b"connection", b"close"))
        return h11.Response(status_code=self._start["status"], headers=headers)

    def _without_body(self) -> bool:
        assert self._start is not None
        return self._request.method == b"HEAD" or self._start["status"] in (204, 304)

    async def _write(self, data: bytes) -> None:
        try:
            left = memoryview(data)[self._link.write_now(data) :]
            if left or self._link.unsent:
                if not self._known:
                    self._keep(len(left))
                await self._link.send_all(left, self._hub.settings.write_stall_ms)
                self._hold(0)
        except LinkLost as error:
            self._gone = True
            if isinstance(error, Stalled):
                self._hub.counters.stalled_writes += 1
            self._link.abort()
            raise
        except trio.Cancelled:
            self._link.abort()  # nothing can follow half an answer
            raise
        await trio.lowlevel.checkpoint()
