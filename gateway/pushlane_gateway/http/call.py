"""A call: one request of an operation, by somebody who may make it."""

from __future__ import annotations

from contextlib import ExitStack, aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pushlane.wire.codec import decode_json
from pushlane.wire.errors import BadRequest, Forbidden, TooLarge
from pushlane.wire.names import check_queue_name
from pushlane_gateway.auth.admission import Claims, Permit
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Action
from pushlane_gateway.http.context import HttpContext
from pushlane_gateway.http.errors import NO_STORE, ClientGone, with_hint
from pushlane_gateway.http.operation import Operation
from pushlane_gateway.listener.exchange import KNOWN

T = TypeVar("T")

JSON = "application/json"
SECRETS = ("token", "access_token", "authorization", "key", "api_key")
"""What people put into URLs and shouldn't: those are logged everywhere."""


class Permitted(Response):
    """An answer that takes its part of shared limits until it is written."""

    def __init__(self, content: bytes, permits: ExitStack) -> None:
        super().__init__(content, 200, NO_STORE, JSON)
        self._permits = permits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._permits:
            await super().__call__(scope, receive, send)


class Call:
    def __init__(
        self, request: Request, operation: Operation, identity: Identity, context: HttpContext
    ) -> None:
        self.request = request
        self.operation = operation
        self.identity = identity
        self.context = context

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    @property
    def claims(self) -> Claims:
        """Of whose shares it takes what it asks for."""
        return self.context.admission.claims(self.identity)

    @property
    def queue(self) -> str:
        """The queue that the path names."""
        return check_queue_name(self.request.path_params["queue"])

    @property
    def id(self) -> str:
        """The message that the path names."""
        return str(self.request.path_params["id"])

    def header(self, name: str) -> str | None:
        """The only header of this name."""
        found = self.request.headers.getlist(name)
        if len(found) > 1:
            raise BadRequest(f"there are {len(found)} {name} headers: one is enough")
        return found[0] if found else None

    # Rights

    def check_rights(self) -> None:
        if self.operation.operator and not self.identity.operates:
            raise Forbidden(f"{self.identity.name} may not do this: it takes operate:*")
        if self.operation.rights and "queue" in self.request.path_params:
            self.need(self.operation.rights, self.queue)

    def need(self, rights: tuple[Action, ...], queue: str) -> None:
        """Raise unless the caller has one of these rights on a queue."""
        if not any(self.identity.allows(right, queue) for right in rights):
            wanted = " or ".join(rights)
            raise Forbidden(f"{self.identity.name} may not {wanted} {queue}")

    def vouch(self, claims: Claims) -> None:
        """Tell the listener that the caller is known: its body counts for these."""
        known = self.request.scope.get("extensions", {}).get(KNOWN)
        if known is not None:
            known["tell"](claims)

    def looking(self) -> Permit:
        """A place among those who look at what is stored. Raises Throttled."""
        return self.context.admission.admit(self.identity, "peeks")

    # What it says

    def query(self, kind: type[T]) -> T:
        found = self.request.query_params.multi_items()
        values = dict(found)
        if len(values) < len(found):
            raise BadRequest("a query parameter is given twice")
        if any(name.lower() in SECRETS for name in values):
            raise BadRequest("credentials belong into the Authorization header, never into a URL")
        try:
            return msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequest(f"query: {with_hint(kind, str(error))}") from None

    def check_type(self) -> None:
        """A page elsewhere can send forms and plain text without asking, but not JSON."""
        kind = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if kind != JSON:
            raise BadRequest(f"the content type must be {JSON}")
        if (self.header("content-encoding") or "identity").lower() != "identity":
            raise BadRequest("a compressed body is not supported")

    async def body(self) -> Any:
        """The body, as the operation's type. An empty one is an empty object."""
        data = await self.read()
        try:
            return decode_json(self.operation.decoder, data or b"{}")
        except BadRequest as error:
            hint = with_hint(self.operation.body, error.message)
            raise BadRequest(hint, limit=error.limit) from None

    async def read(self, most: int | None = None, limit: str = "frame_bytes") -> bytes:
        """The body as it came; raises TooLarge, before it is read where its length was said."""
        most = most or self.context.limits.frame_bytes
        data = bytearray()
        length = self.request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise TooLarge(f"the body has more than {most} bytes", limit=limit)
        try:
            async with aclosing(self.request.stream()) as chunks:
                async for chunk in chunks:
                    data += chunk
                    if len(data) > most:
                        raise TooLarge(f"the body has more than {most} bytes", limit=limit)
        except ClientDisconnect:
            raise ClientGone from None
        return bytes(data)

    async def gone(self) -> None:
        """Return when the client has gone. The body must have been read before."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    # What it is answered

    def encode(self, value: Any, permits: ExitStack) -> bytes:
        """Messages as an answer: one of the permits is for them. Raises Throttled."""
        content = msgspec.json.encode(value)
        admission = self.context.admission
        permits.enter_context(admission.admit(self.identity, "answers_bytes", len(content)))
        self.vouch(self.claims)  # its answer has a place: the budget of strangers has no part in it
        return content

    def answer(
        self, value: Any, status: int | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        return Response(
            msgspec.json.encode(value),
            status or self.operation.status,
            {**NO_STORE, **(headers or {})},
            JSON,
        )
