"""Who asks: the bearer token of a request. It is looked at each time and never kept or logged."""

from __future__ import annotations

from starlette.requests import Request

from pushlane.wire.errors import Unauthorized
from pushlane_gateway.auth.authenticator import Authenticator, bearer
from pushlane_gateway.auth.identity import Identity


def identify(request: Request, authenticator: Authenticator) -> Identity:
    """Raises Unauthorized."""
    found = request.headers.getlist("authorization")
    if len(found) > 1:
        raise Unauthorized("there are several Authorization headers: one is enough")
    return authenticator.authenticate(bearer(found[0] if found else None))
