"""Who asks: the bearer token of a request. It is looked at each time and never kept or logged."""

from __future__ import annotations

from starlette.requests import Request

from pushlane.wire.errors import Unauthorized
from pushlane_gateway.auth.authenticator import bearer
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.http.tools import HttpTools


def identify(request: Request, tools: HttpTools) -> Identity:
    """Raises Unauthorized."""
    found = request.headers.getlist("authorization")
    try:
        if len(found) > 1:
            raise Unauthorized("there are several Authorization headers: one is enough")
        return tools.authenticator.authenticate(bearer(found[0] if found else None))
    except Unauthorized as error:
        client = request.client
        tools.failed_logins.note("" if client is None else f"{client.host}:{client.port}", error)
        raise
