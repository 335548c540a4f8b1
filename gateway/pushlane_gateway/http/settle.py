"""Settling: ack, nack and extend, by receipts alone.

A request has no session. What a receive handed out is found by the receipts' prefixes, and may be
settled by whoever may consume the queue. Receipts of WebSocket sessions belong to their sessions
and are `lease_lost` here, unless the session was cut off by a crash.
"""

from __future__ import annotations

from contextlib import ExitStack

from starlette.responses import Response

from pushlane.wire.frames import Ack, Extend, Nack
from pushlane.wire.receipts import Span
from pushlane.wire.validate import check_extend, check_nack, check_receipts
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.waiter import Waiter
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.grant import Grant, find_grant
from pushlane_gateway.http.objects import AckBody, ExtendBody, NackBody, SettleAnswer
from pushlane_gateway.http.tools import HttpTools
from pushlane_gateway.session.receipts import count, render_all
from pushlane_gateway.session.settling import Gather

NONE = 1
"""A frame names a sub, a request has none."""


async def ack(call: Call) -> Response:
    body: AckBody = await call.body()
    spans = check_receipts(Ack(NONE, body.receipts), call.tools.limits)
    return await _settle(call, ACK, spans)


async def nack(call: Call) -> Response:
    body: NackBody = await call.body()
    frame = Nack(NONE, body.receipts, body.delay_ms, body.error, body.dead)
    spans = check_nack(frame, call.tools.limits)
    act = Act("nack", delay_ms=body.delay_ms, error=body.error, dead=body.dead)
    return await _settle(call, act, spans)


async def extend(call: Call) -> Response:
    body: ExtendBody = await call.body()
    spans = check_extend(Extend(NONE, body.receipts, body.lease_ms), call.tools.limits)
    return await _settle(call, Act("extend", lease_ms=body.lease_ms), spans)


async def _settle(call: Call, act: Act, spans: list[Span]) -> Response:
    queue = await call.tools.open_existing(call.identity, call.queue)
    by_grant, duplicate, lost = _sort(queue, spans, call.tools)
    gather = await _act(act, by_grant)
    if gather.error is not None:
        raise gather.error
    duplicate += gather.duplicate
    lost += gather.lost
    done = count(spans) - count(duplicate) - count(lost)
    call.tools.metrics.settled.add(call.operation.name, done)
    return call.answer(SettleAnswer(render_all(lost), render_all(duplicate)))


async def _act(act: Act, by_grant: dict[Grant, list[Span]]) -> Gather:
    """What became of it, once all of it is durable."""
    waiter: Waiter[Gather] = Waiter()
    gather = Gather(len(by_grant) + 1, waiter)
    with ExitStack() as settling:
        for grant, own in by_grant.items():
            settling.enter_context(grant.settling())
            found = grant.subscription
            grant.runner.settle(found, found.generation, act, own, gather)
        gather.one_less()
        return await waiter.wait()


def _sort(
    queue: OpenQueue, spans: list[Span], tools: HttpTools
) -> tuple[dict[Grant, list[Span]], list[Span], list[Span]]:
    """Receipts by whose they are; and of those that are nobody's, what was settled and is lost."""
    grants: dict[str, Grant | None] = {}
    by_grant: dict[Grant, list[Span]] = {}
    duplicate: list[Span] = []
    lost: list[Span] = []
    for span in spans:
        prefix = span[0]
        if prefix not in grants:
            grants[prefix] = _find(queue, prefix, tools)
        grant = grants[prefix]
        if grant is not None:
            by_grant.setdefault(grant, []).append(span)
        else:
            known, unknown = tools.settled.sort(queue.row.id, span)
            duplicate += known
            lost += unknown
    return by_grant, duplicate, lost


def _find(queue: OpenQueue, prefix: str, tools: HttpTools) -> Grant | None:
    found = queue.find(prefix)
    if found is None:
        return None
    grant = find_grant(*found, tools.settled)
    if grant is not None:
        grant.begin()  # who has a receipt has the answer
    return grant
