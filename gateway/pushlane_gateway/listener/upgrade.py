"""The WebSocket handshake: from a request on `/v1/ws` to the answer 101, or a refusal.

The rules of RFC 6455 are those of `websockets`; the subprotocol and the answers to what is wrong
are ours. A token in the URL is refused: URLs end up in logs of proxies and in browsers' histories.
For the same reason nothing here ever logs or repeats a request's target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl

import h11
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.headers import parse_subprotocol
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from pushlane.wire.codec import Codec, negotiate
from pushlane.wire.errors import BadRequest
from pushlane_gateway.listener.decoder import quiet
from pushlane_gateway.listener.head import header
from pushlane_gateway.listener.refusal import Refusal

PATH = b"/v1/ws"

Allow = Callable[[str | None, str | None], bool]
"""Says of an Origin and a Host whether they may connect."""

# fmt: off
_SECRETS = frozenset((
    "token", "access_token", "accesstoken", "auth_token", "authtoken", "id_token", "auth",
    "authorization", "bearer", "jwt", "api_key", "apikey", "key", "secret", "password",
))
# fmt: on


def is_upgrade(request: h11.Request) -> bool:
    """Whether this is for us: anything on the path of the WebSocket."""
    return request.target.partition(b"?")[0] == PATH


def upgrade(request: h11.Request, allow: Allow) -> tuple[bytes, Codec]:
    """The answer 101, and what frames will be in. Raises Refusal."""
    _refuse_secrets(request.target)
    _judge_headers(request)
    if not allow(only(request, b"origin"), only(request, b"host")):
        raise Refusal(403, "this Origin or Host may not connect", code="forbidden")
    codec, offered = _negotiate(request)

    def select(_: ServerProtocol, __: Sequence[Subprotocol]) -> Subprotocol | None:
        return Subprotocol(codec.subprotocol) if offered else None

    protocol = ServerProtocol(select_subprotocol=select, logger=quiet)
    try:
        response = protocol.accept(_as_theirs(request))
    except InvalidHandshake:  # its text would quote the header
        raise _refusal(400) from None
    finally:
        protocol.parser.close()  # or it and its parser would hold each other
    if response.status_code != 101:
        raise _refusal(response.status_code)
    return response.serialize(), codec


def only(request: h11.Request, name: bytes) -> str | None:
    values = header(request, name)
    return values[0] if values else None


def _judge_headers(request: h11.Request) -> None:
    for name in (b"origin", b"authorization"):
        if len(header(request, name)) > 1:
            raise Refusal(400, f"more than one {name.decode().title()}")
    if header(request, b"transfer-encoding") or header(request, b"content-length") not in (
        [],
        ["0"],
    ):
        raise Refusal(400, "a WebSocket handshake has no body")


def _refuse_secrets(target: bytes) -> None:
    query = target.partition(b"?")[2].decode("latin-1")
    names = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if names & _SECRETS:
        raise Refusal(400, "no token in the URL: send it in `hello` or as Authorization")


def _negotiate(request: h11.Request) -> tuple[Codec, bool]:
    try:
        values = header(request, b"sec-websocket-protocol")
        offered = [name for value in values for name in parse_subprotocol(value)]
        return negotiate(offered), bool(offered)
    except InvalidHandshake:
        raise Refusal(400, "malformed Sec-WebSocket-Protocol") from None
    except BadRequest as error:
        raise Refusal(400, error.message) from None


def _as_theirs(request: h11.Request) -> Request:
    headers = Headers((name.decode(), value.decode("latin-1")) for name, value in request.headers)
    version = request.http_version.decode()
    return Request("/", headers, method=request.method.decode(), protocol=f"HTTP/{version}")


def _refusal(status: int) -> Refusal:
    if status == 405:
        return Refusal(405, "a WebSocket begins with GET", headers=(("Allow", "GET"),))
    if status == 426:
        return Refusal(426, "this is a WebSocket", headers=(("Upgrade", "websocket"),))
    if status == 505:
        return Refusal(505, "a WebSocket needs HTTP/1.1")
    return Refusal(400, "malformed WebSocket handshake")
