"""Receiving: a long poll that ends with the first messages, with its time, or with its client.

The leases begin when the answer is out. Until then everything is only reserved, so that a client
that goes away, a lost connection or a stopping server give it back without counting an attempt.
"""

from __future__ import annotations

from contextlib import ExitStack

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pushlane.wire.errors import BadRequest
from pushlane.wire.frames import DeliverMessage
from pushlane.wire.validate import check_lease
from pushlane_dispatcher.port import Granted, Poll, PollOptions
from pushlane_gateway.http.call import Call, Permitted
from pushlane_gateway.http.errors import ClientGone
from pushlane_gateway.http.objects import MessagesAnswer, ReceiveBody
from pushlane_gateway.session.delivery import message_object, size_of


class Received(Permitted):
    """The answer to a receive."""

    def __init__(self, poll: Poll, content: bytes, permits: ExitStack) -> None:
        super().__init__(content, permits)
        self._poll = poll

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            self._poll.give_back()
            raise
        self._poll.begin()


async def receive(call: Call) -> Response:
    tools = call.tools
    tools.check_going()
    body: ReceiveBody = await call.body()
    _check(call, body)
    settings = tools.settings
    options = PollOptions(
        call.identity.name, body.max, body.lease_ms, body.wait_ms,
        settings.grace_ms, settings.answer_bytes, size_of, call.claims,
    )  # fmt: skip
    with tools.admission.admit(call.identity, "polls"):
        caller = tools.caller(call.identity, make=True)
        poll = await tools.receiving.poll(caller, call.queue, options)
        try:
            await _wait(call, poll)
            return _answer(call, poll)
        except BaseException:
            poll.give_back()
            raise


def _answer(call: Call, poll: Poll) -> Response:
    if poll.error is not None:
        raise poll.error
    call.tools.authenticator.check(call.identity)  # it may have been revoked meanwhile
    messages = [_shown(granted) for granted in poll.take()]
    with ExitStack() as permits:
        content = call.encode(MessagesAnswer(messages), permits)
        call.tools.metrics.delivered += len(messages)
        return Received(poll, content, permits.pop_all())


def _shown(granted: Granted) -> DeliverMessage:
    shown = message_object(granted.id, granted.message, granted.attempt)
    shown.receipt, shown.fence, shown.lease_ms = granted.receipt, granted.fence, granted.lease_ms
    return shown


def _check(call: Call, body: ReceiveBody) -> None:
    limits = call.tools.limits
    if not 1 <= body.max <= limits.batch:
        raise BadRequest(f"max is {body.max}: 1 to {limits.batch}", limit="batch")
    if not 0 <= body.wait_ms <= limits.wait_ms:
        raise BadRequest(f"wait_ms is {body.wait_ms}: 0 to {limits.wait_ms}", limit="wait_ms")
    if body.lease_ms is not None:
        check_lease(body.lease_ms, limits)


async def _wait(call: Call, poll: Poll) -> None:
    """Raises ClientGone."""
    gone = False
    async with trio.open_nursery() as nursery:

        async def watch_client() -> None:
            nonlocal gone
            await call.gone()
            gone = True
            nursery.cancel_scope.cancel()

        async def watch_server() -> None:
            await call.tools.draining.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch_client)
        nursery.start_soon(watch_server)
        await poll.run()
        nursery.cancel_scope.cancel()
    if gone:
        raise ClientGone
