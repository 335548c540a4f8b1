"""Consuming by requests alone, without a session: receive, then ack, nack and extend by receipts.

A receive is a long poll that ends with the first messages, with its time, or with its client. The
leases begin when the answer is out. Until then everything is only reserved, so that a client that
goes away, a lost connection or a stopping server give it back without counting an attempt.

What a receive handed out may be settled by whoever may consume the queue. Receipts of sessions are
`lease_lost` here, unless a crash cut the session off.
"""

from __future__ import annotations

from contextlib import ExitStack

import trio
from starlette.responses import Response
from starlette.types import Receive as AsgiReceive
from starlette.types import Scope, Send

from pushlane.wire.errors import BadRequest
from pushlane.wire.frames import Ack, DeliverMessage, Extend, Nack
from pushlane.wire.receipts import ReceiptRun, count, render_all
from pushlane.wire.validate import check_extend, check_lease, check_nack, check_receipts
from pushlane_dispatcher.port import ACK, Act, Feed, Gather, Receive, Received, Waiter
from pushlane_gateway.http.call import Call, Permitted
from pushlane_gateway.http.errors import ClientGone
from pushlane_gateway.http.objects import (
    AckBody,
    ExtendBody,
    MessagesAnswer,
    NackBody,
    ReceiveBody,
    SettleAnswer,
)
from pushlane_gateway.session.delivery import message_object, size_of

NONE = 1
"""A frame names a sub, a request has none."""


class ReceiveAnswer(Permitted):
    def __init__(self, received: Receive, content: bytes, permits: ExitStack) -> None:
        super().__init__(content, permits)
        self._received = received

    async def __call__(self, scope: Scope, receive: AsgiReceive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            self._received.give_back()
            raise
        self._received.begin()


async def receive(call: Call) -> Response:
    context = call.context
    context.check_going()
    body: ReceiveBody = await call.body()
    _check(call, body)
    identity = call.identity
    with context.admission.admit(identity, "polls"):
        found = Receive(identity.tenant, call.queue, identity.name, body.max, body.lease_ms)
        waiter: Waiter[Feed | None] = Waiter()
        with context.door(identity, waiter, make=True) as door:
            door.subscribe(found.spec, found, waiter)
            found.subscribed(await waiter.wait())
        try:
            await _wait(call, found, body.wait_ms)
            return _answer(call, found)
        except BaseException:
            found.give_back()
            raise


def _answer(call: Call, found: Receive) -> Response:
    messages = [_shown(each) for each in found.take(call.context.settings.answer_bytes, size_of)]
    call.context.authenticator.check(call.identity)  # it may have been revoked meanwhile
    with ExitStack() as permits:
        content = call.encode(MessagesAnswer(messages), permits)
        call.context.metrics.delivered += len(messages)
        return ReceiveAnswer(found, content, permits.pop_all())


def _shown(found: Received) -> DeliverMessage:
    shown = message_object(found.id, found.message, found.attempt)
    shown.receipt, shown.fence, shown.lease_ms = found.receipt, found.fence, found.lease_ms
    return shown


def _check(call: Call, body: ReceiveBody) -> None:
    limits = call.context.limits
    most, limit = min((limits.batch, "batch"), (limits.credit, "credit"))
    if not 1 <= body.max <= most:
        raise BadRequest(f"max is {body.max}: 1 to {most}", limit=limit)
    if not 0 <= body.wait_ms <= limits.wait_ms:
        raise BadRequest(f"wait_ms is {body.wait_ms}: 0 to {limits.wait_ms}", limit="wait_ms")
    if body.lease_ms is not None:
        check_lease(body.lease_ms, limits)


async def _wait(call: Call, found: Receive, wait_ms: int) -> None:
    """Raises ClientGone."""
    gone = False
    async with trio.open_nursery() as nursery:

        async def watch_client() -> None:
            nonlocal gone
            await call.gone()
            gone = True
            nursery.cancel_scope.cancel()

        async def watch_server() -> None:
            await call.context.draining.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch_client)
        nursery.start_soon(watch_server)
        await found.wait(wait_ms, call.context.settings.grace_ms)
        nursery.cancel_scope.cancel()
    if gone:
        raise ClientGone


async def ack(call: Call) -> Response:
    body: AckBody = await call.body()
    receipts = check_receipts(Ack(NONE, body.receipts), call.context.limits)
    return await _settle(call, ACK, receipts)


async def nack(call: Call) -> Response:
    body: NackBody = await call.body()
    frame = Nack(NONE, body.receipts, body.delay_ms, body.error, body.dead)
    receipts = check_nack(frame, call.context.limits)
    act = Act("nack", delay_ms=body.delay_ms, error=body.error, dead=body.dead)
    return await _settle(call, act, receipts)


async def extend(call: Call) -> Response:
    body: ExtendBody = await call.body()
    receipts = check_extend(Extend(NONE, body.receipts, body.lease_ms), call.context.limits)
    return await _settle(call, Act("extend", lease_ms=body.lease_ms), receipts)


async def _settle(call: Call, act: Act, receipts: list[ReceiptRun]) -> Response:
    context = call.context
    waiter: Waiter[Gather] = Waiter()
    with context.door(call.identity, waiter) as door:
        door.settle(call.queue, act, receipts, waiter)
        found = await waiter.wait()
    if found.error is not None:
        raise found.error
    done = count(receipts) - count(found.duplicate) - count(found.lost)
    context.metrics.settled.add(call.operation.name, done)
    return call.answer(SettleAnswer(render_all(found.lost), render_all(found.duplicate)))
