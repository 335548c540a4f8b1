"""Single messages: look at them, explain them, cancel them. None of it leases anything."""

from __future__ import annotations

from contextlib import ExitStack

from starlette.responses import Response

from pushlane.wire.frames import DeliverMessage
from pushlane_dispatcher.port import Page
from pushlane_gateway.http.call import Call, Permitted
from pushlane_gateway.http.objects import Nothing, PeekAnswer, PeekQuery, stored_message
from pushlane_gateway.session.delivery import message_object, size_of


async def peek(call: Call) -> Response:
    """What would be delivered next, as far as it goes into one answer."""
    query = call.query(PeekQuery)
    dispatcher, most = call.context.dispatcher, call.context.settings.answer_bytes
    with ExitStack() as permits:
        permits.enter_context(call.looking())
        page = await dispatcher.peek(call.tenant, call.queue, query.limit, query.after, most)
        shown = _shown(page, most)
        following = page.after(len(shown))
        if following is not None and len(shown) < query.limit:
            call.context.metrics.limits.add("answer_bytes")
        return Permitted(call.encode(PeekAnswer(shown, following), permits), permits.pop_all())


def _shown(page: Page, left: int) -> list[DeliverMessage]:
    """The first of a page, about `left` bytes of them."""
    shown: list[DeliverMessage] = []
    for found in page.messages:
        left -= size_of(found.message)
        if shown and left < 0:
            break
        shown.append(message_object(page.id(found), found.message, found.attempts))
    return shown


async def get(call: Call) -> Response:
    dispatcher = call.context.dispatcher
    with ExitStack() as permits:
        permits.enter_context(call.looking())
        message, attempts = await dispatcher.message(call.tenant, call.queue, call.id)
        state = (await dispatcher.explain(call.tenant, call.queue, call.id)).state
        shown = stored_message(call.id, message, attempts, state)
        return Permitted(call.encode(shown, permits), permits.pop_all())


async def explain(call: Call) -> Response:
    with call.looking():
        return call.answer(await call.context.dispatcher.explain(call.tenant, call.queue, call.id))


async def cancel(call: Call) -> Response:
    await call.context.dispatcher.cancel(call.tenant, call.queue, call.id, call.claims)
    return call.answer(Nothing())
