"""The requests of a pipe: open, send, receive, close. What they mean is pipe/pipe.py's business."""

from __future__ import annotations

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pushlane.wire.codec import decode_json
from pushlane.wire.errors import BadFrame, BadRequest, Unauthorized
from pushlane_gateway.auth.admission import Claims
from pushlane_gateway.auth.identity import ANONYMOUS
from pushlane_gateway.http.call import JSON, Call
from pushlane_gateway.http.context import look_at
from pushlane_gateway.http.errors import NO_STORE, ClientGone
from pushlane_gateway.http.objects import Nothing, PipeAnswer, PipeBody
from pushlane_gateway.pipe.boxes import Answer, Gone
from pushlane_gateway.pipe.pipe import Pipe
from pushlane_gateway.pipe.split import split

HEADER = "Pushlane-Pipe"
"""Names the pipe of a request. The body does, too, but that may be large."""
OPEN_SPLIT_BYTES = 8 * 1024
"""A request that names no pipe and is larger is refused as a whole when one frame in it is bad."""
WAIT_MS = 20_000
"""How long a receive waits unless it says otherwise."""


class Fetched(Response):
    """The answer to a receive: while it is written the client is not silent."""

    def __init__(self, pipe: Pipe, answer: Answer) -> None:
        super().__init__(answer.body, 200, NO_STORE, JSON)
        self._pipe = pipe
        self._is_last = answer.is_last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
            self._pipe.told = self._pipe.told or self._is_last
        finally:
            self._pipe.end_receive()


async def pipe(call: Call) -> Response:
    named = call.header(HEADER)
    data = await _read(call, None if named is None else call.context.pipes.find(named))
    body, frames = _decode(call.operation.decoder, data, is_open=named is None)
    if frames is not None and not frames:
        raise BadRequest("frames is empty")
    if body.pipe is None and named is None:
        return _open(call, body, frames)
    if named is not None and body.pipe not in (None, named):
        raise BadRequest(f"pipe is another one than {HEADER} says")
    found = call.context.pipes.find(named or body.pipe or "")
    if (body.n is None) != (frames is None):
        raise BadRequest("a send has both n and frames")
    if body.after is None:
        return await _send(call, found, body, frames or [])
    if body.n is not None or body.close is not None:
        raise BadRequest("a receive (with after) neither sends nor closes")
    return await _receive(call, found, body.after, body.wait_ms)


async def _read(call: Call, pipe: Pipe | None) -> bytes:
    """The body: a large one only of who was welcomed, which is known before it is read."""
    if pipe is None:
        claims = _claims(call)
        welcome = claims is not None
    else:
        welcome, claims = pipe.is_admitted, pipe.claims
    if claims is not None:
        call.vouch(claims)
    if welcome:
        return await call.read()
    return await call.read(call.context.unauthenticated_bytes, "unauthenticated_bytes")


def _claims(call: Call) -> Claims | None:
    """Of whom it is, if a header says who asks; mostly the hello does that.

    A wrong one is the session's to note: it looks at it again, unless the hello has another.
    """
    try:
        identity = look_at(call.request, call.context)
    except Unauthorized:
        return None
    return None if identity is ANONYMOUS else call.context.admission.claims(identity)


def _decode(
    decoder: msgspec.json.Decoder[PipeBody], data: bytes, *, is_open: bool
) -> tuple[PipeBody, list[bytes] | None]:
    """What a request says, and its frames."""
    try:
        body = decode_json(decoder, data)
    except BadFrame:
        # Splitting takes its time: whom nobody knows gets little of it.
        found = None if is_open and len(data) > OPEN_SPLIT_BYTES else split(data)
        if found is None:
            raise
        return decode_json(decoder, found[0]), found[1]
    return body, None if body.frames is None else [bytes(frame) for frame in body.frames]


def _open(call: Call, body: PipeBody, frames: list[bytes] | None) -> Response:
    if frames is None or not (body.n is body.after is body.close is None):
        raise BadRequest("a pipe is opened with frames alone, and named in all other requests")
    call.context.check_going()
    client = call.request.client
    peer = "" if client is None else f"{client.host}:{client.port}"
    opened = call.context.pipes.open(frames, call.header("authorization"), peer)
    return call.answer(PipeAnswer(opened.id))


async def _send(call: Call, pipe: Pipe, body: PipeBody, frames: list[bytes]) -> Response:
    if body.close is not None:
        await pipe.leave(body.close, body.n, frames, _gone(call))
    elif body.n is not None:
        await pipe.put(body.n, frames, _gone(call))
    else:
        raise BadRequest("nothing to do: n and frames, after, or close")
    return call.answer(Nothing())


async def _receive(call: Call, pipe: Pipe, after: int, wait_ms: int | None) -> Response:
    most = call.context.limits.wait_ms
    if wait_ms is None:
        wait_ms = min(WAIT_MS, most)
    if wait_ms > most:
        raise BadRequest(f"wait_ms is {wait_ms}: 0 to {most}", limit="wait_ms")
    pipe.begin_receive()
    try:
        return Fetched(pipe, await pipe.fetch(after, wait_ms / 1000, _gone(call)))
    except BaseException:
        pipe.end_receive()
        raise


def _gone(call: Call) -> Gone:
    async def gone() -> None:
        await call.gone()
        raise ClientGone

    return gone
