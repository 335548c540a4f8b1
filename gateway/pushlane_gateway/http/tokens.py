"""Tokens: short-lived ones with some of the caller's own rights, for a browser say."""

from __future__ import annotations

from starlette.responses import Response

from pushlane_gateway.auth.rule import parse_rules
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import TokenAnswer, TokenBody


async def create(call: Call) -> Response:
    body: TokenBody = await call.body()
    rules = parse_rules(body.rules)
    token, expires_at = call.context.authenticator.issue(
        call.identity, rules, body.ttl_ms, body.subject
    )
    return call.answer(TokenAnswer(token, expires_at))
