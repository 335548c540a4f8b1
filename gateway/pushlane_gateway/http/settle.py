"""Settling: ack, nack and extend, by receipts alone.

A request has no session: what a receive handed out may be settled by whoever may consume the queue.
Receipts of sessions are `lease_lost` here, unless a crash cut the session off.
"""

from __future__ import annotations

from starlette.responses import Response

from pushlane.wire.frames import Ack, Extend, Nack
from pushlane.wire.receipts import ReceiptRun, count, render_all
from pushlane.wire.validate import check_extend, check_nack, check_receipts
from pushlane_dispatcher.port import ACK, Act, Gather, Waiter
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import AckBody, ExtendBody, NackBody, SettleAnswer

NONE = 1
"""A frame names a sub, a request has none."""


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
