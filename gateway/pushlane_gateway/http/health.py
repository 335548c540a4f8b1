"""Whether the server lives, whether it is ready, its limits and its metrics."""

from __future__ import annotations

import logging

import trio
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import PlainTextResponse, Response

from pushlane.wire.errors import PushlaneError
from pushlane_gateway.auth.identity import DEFAULT_TENANT
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.errors import NO_STORE
from pushlane_gateway.http.objects import LimitsAnswer

log = logging.getLogger(__name__)


async def healthz(_: Call) -> Response:
    """The process lives: it got here."""
    return PlainTextResponse("ok\n", headers=NO_STORE)


async def readyz(call: Call) -> Response:
    """New clients are welcome: the server is not about to stop, was not fenced just now, and its
    store answers."""
    fault = await _fault(call)
    if fault is None:
        return PlainTextResponse("ready\n", headers=NO_STORE)
    return PlainTextResponse(f"{fault}\n", 503, headers=NO_STORE)


async def _fault(call: Call) -> str | None:
    if call.context.draining.is_set():
        return "draining"
    if call.context.dispatcher.was_fenced:
        return "fenced: other servers took over"
    if call.context.dispatcher.seems_dead:
        return "the store takes no heartbeats: nothing is delivered until it does"
    return await _store_fault(call)


async def _store_fault(call: Call) -> str | None:
    context = call.context
    with trio.move_on_after(context.settings.ready_ms / 1000):
        try:
            await context.dispatcher.list(DEFAULT_TENANT, limit=1)
        except PushlaneError as error:
            log.warning("not ready: %s", error)
            return "the store does not answer"
        return None
    context.metrics.limits.add("ready_ms")
    return "the store does not answer in time"


async def limits(call: Call) -> Response:
    """For clients without a session: they get no `welcome`."""
    limits = call.context.limits
    return call.answer(LimitsAnswer(limits.wire(), limits.resume_ms, limits.heartbeat_ms))


async def metrics(call: Call) -> Response:
    text = generate_latest(call.context.metrics.registry())
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST, **NO_STORE})
