"""A resource: one path, and what each method does there. Every error becomes an answer here."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pushlane.wire.errors import PushlaneError
from pushlane_gateway.auth.identity import ANONYMOUS
from pushlane_gateway.http.auth import identify
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.errors import ClientGone, error_response, internal, wrong_method
from pushlane_gateway.http.operation import WITH_BODY, Operation
from pushlane_gateway.http.tools import HttpTools

log = logging.getLogger(__name__)


class Resource:
    """An ASGI app."""

    def __init__(self, operations: Sequence[Operation], tools: HttpTools) -> None:
        self._operations = {operation.method: operation for operation in operations}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._allowed = ", ".join([*self._operations, "OPTIONS"])
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._respond(request)
        except ClientGone:
            return
        if request.method == "HEAD":
            response.body = b""
        self._tools.metrics.http_answers.add(str(response.status_code))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        metrics = self._tools.metrics
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
        tools = self._tools
        tools.metrics.http_requests.add(operation.name)
        request.scope["route_path"] = operation.path
        identity = ANONYMOUS
        if not operation.public:
            identity = identify(request, tools)
        call = Call(request, operation, identity, tools)
        if identity is not ANONYMOUS:
            call.vouch(call.claims)
        call.check_rights()
        if operation.method in WITH_BODY:
            call.check_type()
        if operation.query is not None:
            call.query(operation.query)
        return await operation.handler(call)
