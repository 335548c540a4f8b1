"""The app: routes made of the table of operations, with one way for all errors.

    tools = HttpTools(dispatcher, authenticator, origins, metrics, …)
    app = make_app(tools)
    tools.draining.set()      # before the server stops

Nothing here needs asyncio: Starlette's routes, requests and responses are plain ASGI.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pushlane.wire.errors import NotFound
from pushlane_gateway.http.cors import Cors
from pushlane_gateway.http.errors import error_response
from pushlane_gateway.http.resource import Resource
from pushlane_gateway.http.table import OPERATIONS
from pushlane_gateway.http.tools import HttpTools


def make_app(tools: HttpTools) -> Starlette:
    by_path = attrgetter("path")
    routes = [
        Route(path, Resource(list(operations), tools))
        for path, operations in groupby(sorted(OPERATIONS, key=by_path), by_path)
    ]

    async def no_such_path(_: Request, __: Exception) -> Response:
        tools.metrics.errors.add("not_found")
        tools.metrics.http_answers.add("404")
        return error_response(NotFound("there is nothing at this path: see /docs"))

    app = Starlette(
        routes=routes,
        middleware=[Middleware(Cors, tools)],
        exception_handlers={HTTPException: no_such_path},
    )
    app.router.redirect_slashes = False
    return app
