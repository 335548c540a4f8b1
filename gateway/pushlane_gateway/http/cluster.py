"""The cluster: its nodes, as this one sees them, and which of them are to give up their slots."""

from __future__ import annotations

from starlette.responses import Response

from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import DrainBody, Nothing


async def status(call: Call) -> Response:
    return call.answer(await call.context.dispatcher.cluster_status())


async def drain(call: Call) -> Response:
    body: DrainBody = await call.body()
    await call.context.dispatcher.set_draining(body.node, not body.undo)
    return call.answer(Nothing())
