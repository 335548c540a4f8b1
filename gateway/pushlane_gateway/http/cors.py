"""Which web pages may call, and what their browsers are told.

One rule for WebSockets and HTTP (auth/origin.py): an Origin that is not allowed is refused, not
only left without its headers, since a browser sends many requests before it looks for those. So is
a foreign Host where no keys are asked for. Only the health checks are for everybody.

A page that is refused may read that it is, and why: else its browser would only say that something
failed. So the preflight of its request is allowed, and the request itself is not.

Pages never get credentials of the browser's own (cookies), so there is no `Allow-Credentials`: a
page has to have a token of its own.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pushlane.wire.errors import Forbidden
from pushlane_gateway.http.context import HttpContext
from pushlane_gateway.http.errors import error_response

OPEN = ("/healthz", "/readyz")
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
HEADERS = "authorization, content-type, idempotency-key, if-match, if-none-match, pushlane-pipe"
EXPOSED = "etag, retry-after, allow, www-authenticate"
PREFLIGHT_S = 600
"""How long a browser may remember what it was told: ten minutes, as long as Chromium would."""


REFUSED = (
    "pages of this Origin may not use this server, or not under this Host: the operator can add "
    "them to auth.allowed_origins and auth.allowed_hosts"
)


class Cors:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp, context: HttpContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = _only(headers, "origin")
        if not self._context.origins(origin, _only(headers, "host")):
            await self._refuse(scope, receive, send, headers)
        elif origin is None:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(origin, PREFLIGHT_S)(scope, receive, send)
        else:
            await self._app(scope, receive, _allowing(origin, send))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight("*", 0)(scope, receive, send)
            return
        self._context.metrics.errors.add("forbidden")
        self._context.metrics.http_answers.add("403")
        response = error_response(Forbidden(REFUSED))
        response.headers["access-control-allow-origin"] = "*"
        await response(scope, receive, send)


def _only(headers: Headers, name: str) -> str | None:
    """None: there is no such header. Of several, the nonsense they make together."""
    found = headers.getlist(name)
    return ", ".join(found) if found else None


def _preflight(origin: str, seconds: int) -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-origin": origin,
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": HEADERS,
            "access-control-max-age": str(seconds),
            "vary": "origin",
        },
    )


def _allowing(origin: str, send: Send) -> Send:
    async def allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = EXPOSED
            headers.add_vary_header("origin")
        await send(message)

    return allowing
