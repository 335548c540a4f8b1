"""Single messages: look at them, explain them, cancel them. None of it leases anything."""

from __future__ import annotations

from starlette.responses import Response

from pushlane.wire.frames import DeliverMessage
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import (
    MessagesAnswer,
    Nothing,
    PeekQuery,
    message_object,
    size_of,
    stored_message,
)


async def peek(call: Call) -> Response:
    """What would be delivered next, as far as it goes into one answer."""
    limit = call.query(PeekQuery).limit
    left = call.tools.settings.answer_bytes
    shown: list[DeliverMessage] = []
    for id, message, attempts in await call.tools.dispatcher.peek(call.tenant, call.queue, limit):
        left -= size_of(message)
        if shown and left < 0:
            call.tools.metrics.limits.add("answer_bytes")
            break
        shown.append(message_object(id, message, attempts))
    return call.answer(MessagesAnswer(shown))


async def get(call: Call) -> Response:
    dispatcher = call.tools.dispatcher
    message, attempts = await dispatcher.message(call.tenant, call.queue, call.id)
    state = (await dispatcher.explain(call.tenant, call.queue, call.id)).state
    return call.answer(stored_message(call.id, message, attempts, state))


async def explain(call: Call) -> Response:
    return call.answer(await call.tools.dispatcher.explain(call.tenant, call.queue, call.id))


async def cancel(call: Call) -> Response:
    await call.tools.dispatcher.cancel(call.tenant, call.queue, call.id)
    return call.answer(Nothing())
