"""Who asks: the bearer token of a request. It is looked at each time and never kept or logged."""

from __future__ import annotations

from starlette.requests import Request

from pushlane.wire.errors import Unauthorized
from pushlane_gateway.auth.authenticator import bearer
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.http.tools import HttpTools


def look_at(request: Request, tools: HttpTools) -> Identity:
    """Raises Unauthorized, and leaves it to the caller whether that is a failed login."""
    found = request.headers.getlist("authorization")
    if len(found) > 1:
        raise Unauthorized("there are several Authorization headers: one is enough")
    return tools.authenticator.authenticate(bearer(found[0] if found else None))


def identify(request: Request, tools: HttpTools) -> Identity:
    """Raises Unauthorized."""
    try:
        return look_at(request, tools)
    except Unauthorized as error:
        client = request.client
        tools.failed_logins.note("" if client is None else f"{client.host}:{client.port}", error)
        raise
