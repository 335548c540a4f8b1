"""The app: routes made of the table of operations, with one way for all errors.

    context = HttpContext(dispatcher, authenticator, origins, metrics, …)
    app = make_app(context)
    context.draining.set()      # before the server stops

Nothing here needs asyncio: Starlette's routes, requests and responses are plain ASGI.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane_gateway.auth.identity import ANONYMOUS
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.context import HttpContext, identify
from pushlane_gateway.http.cors import Cors
from pushlane_gateway.http.errors import ClientGone, error_response, internal, wrong_method
from pushlane_gateway.http.operation import WITH_BODY, Operation
from pushlane_gateway.http.table import OPERATIONS

log = logging.getLogger(__name__)

NO_CLIENTS = "this server serves no clients: ask one that has the role gateway"


class Resource:
    """An ASGI app."""

    def __init__(self, operations: Sequence[Operation], context: HttpContext) -> None:
        self._operations = {operation.method: operation for operation in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._allowed = ", ".join([*self._operations, "OPTIONS"])
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._respond(request)
        except ClientGone:
            return
        if request.method == "HEAD":
            response.body = b""
        self._context.metrics.http_answers.add(str(response.status_code))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        metrics = self._context.metrics
        try:
            return await self._ask(request)
        except PushlaneError as error:
            metrics.refused(error)
            return error_response(error)
        except ClientGone:
            raise
        except Exception:
            metrics.errors.add("internal")
            path = request.scope.get("route_path", "a request")
            log.exception("%s %s failed", request.method, path)
            return error_response(internal())

    async def _ask(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": self._allowed})
        operation = self._operations.get(request.method)
        if operation is None:
            raise wrong_method(self._allowed)
        context = self._context
        context.metrics.http_requests.add(operation.name)
        request.scope["route_path"] = operation.path
        identity = ANONYMOUS
        if not operation.public:
            identity = identify(request, context)
        call = Call(request, operation, identity, context)
        if identity is not ANONYMOUS:
            call.vouch(call.claims)
        call.check_rights()
        if operation.method in WITH_BODY:
            call.check_type()
        if operation.query is not None:
            call.query(operation.query)
        return await operation.handler(call)


def make_app(context: HttpContext, operations: Sequence[Operation] = OPERATIONS) -> Starlette:
    by_path = attrgetter("path")
    routes = [
        Route(path, Resource(list(operations), context))
        for path, operations in groupby(sorted(operations, key=by_path), by_path)
    ]

    missing = "there is nothing at this path: see /docs"
    if operations is not OPERATIONS:
        missing = NO_CLIENTS

    async def no_such_path(_: Request, __: Exception) -> Response:
        context.metrics.errors.add("not_found")
        context.metrics.http_answers.add("404")
        return error_response(NotFound(missing))

    app = Starlette(
        routes=routes,
        middleware=[Middleware(Cors, context)],
        exception_handlers={HTTPException: no_such_path},
    )
    app.router.redirect_slashes = False
    return app
