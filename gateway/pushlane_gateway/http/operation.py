"""An operation: one method on one path, what it takes, what it answers, and who may ask for it.

Routes and openapi.json are made from the same operations, so neither can tell what the other
doesn't know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from pushlane_gateway.auth.rule import Action
from pushlane_gateway.http.objects import NoQuery

if TYPE_CHECKING:
    from pushlane_gateway.http.call import Call

Handler = Callable[["Call"], Awaitable[Response]]

WITH_BODY = ("POST", "PUT", "PATCH")


@dataclass(frozen=True, kw_only=True)
class Operation:
    name: str
    """Its `operationId`, and its label in metrics."""
    method: str
    path: str
    summary: str
    handler: Handler
    rights: tuple[Action, ...] = ()
    """Any of these on the queue that the path names; none: being known is enough."""
    operator: bool = False
    """Only for who operates the server."""
    public: bool = False
    """For everybody, without a token."""
    query: type[msgspec.Struct] | None = NoQuery
    """What may stand in the query; None: anything, nobody reads it."""
    body: Any = None
    """The type of its body; None: it has none."""
    answer: Any = None
    """The type of its answer; None: `content` says what it is."""
    content: str = "application/json"
    status: int = 200
    creates: bool = False
    """What it makes anew it answers with 201."""
    headers: tuple[str, ...] = ()
    """Names of request headers that mean something to it."""

    decoder: msgspec.json.Decoder[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert (self.body is not None) == (self.method in WITH_BODY), self.name
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.body or Any))
