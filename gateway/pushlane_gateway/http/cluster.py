"""The cluster: its nodes, as this one sees them."""

from __future__ import annotations

from starlette.responses import Response

from pushlane_gateway.http.call import Call


async def status(call: Call) -> Response:
    return call.answer(await call.context.dispatcher.cluster_status())
