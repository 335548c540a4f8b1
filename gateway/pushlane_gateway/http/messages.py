"""Single messages: look at them, explain them, cancel them. None of it leases anything."""

from __future__ import annotations

from starlette.responses import Response

from pushlane.wire.frames import DeliverMessage
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import Nothing, PeekAnswer, PeekQuery, stored_message
from pushlane_gateway.session.delivery import message_object, size_of


async def peek(call: Call) -> Response:
    """What would be delivered next, as far as it goes into one answer."""
    query = call.query(PeekQuery)
    left = call.tools.settings.answer_bytes
    shown: list[DeliverMessage] = []
    page = await call.tools.dispatcher.peek(call.tenant, call.queue, query.limit, query.after)
    for found in page.messages:
        left -= size_of(found.message)
        if shown and left < 0:
            call.tools.metrics.limits.add("answer_bytes")
            break
        shown.append(message_object(page.id(found), found.message, found.attempts))
    return call.answer(PeekAnswer(shown, page.after(len(shown))))


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
