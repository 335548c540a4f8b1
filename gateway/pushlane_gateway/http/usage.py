"""Usage: what queues did, by the minute, hour or day."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.responses import Response

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import MAX_INT
from pushlane.wire.names import check_queue_name, check_tenant_name
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.objects import BillsBody, Nothing, UsageAnswer, UsageQuery

DAY_MS = 24 * 60 * 60_000
STEPS = {"minute": 1, "hour": 60, "day": 24 * 60}
"""Minutes."""


async def usage(call: Call) -> Response:
    query = call.query(UsageQuery)
    if query.queue is not None:
        call.need(("manage",), check_queue_name(query.queue))
    settings, step = call.context.settings, STEPS[query.by]
    until = _time("until", query.until, call.context.dispatcher.clock.wall())
    since = _time("since", query.since, max(0, until - DAY_MS))
    if since >= until:
        raise BadRequest("since must be before until")
    step_ms = step * 60_000
    since = since // step_ms * step_ms
    if (until - since) / step_ms > settings.usage_points:
        raise BadRequest(
            f"from since to until there are more than {settings.usage_points} times a {query.by}:"
            " ask for less, or for longer stretches",
        )
    points = await call.context.dispatcher.usage(
        call.tenant, since // 60_000, (until - 1) // 60_000, step, query.queue,
        settings.usage_answers, call.claims,
    )  # fmt: skip
    seen = [point for point in points if call.identity.allows("manage", point.queue)]
    return call.answer(UsageAnswer(since, until, query.by, seen))


async def put_bills(call: Call) -> Response:
    """For the usage job: `/v1/usage` shows what it charged. Safe to repeat.

    A tenant doesn't write its own bills: who operates the server writes those of all.
    """
    call.context.check_going()
    body: BillsBody = await call.body()
    tenant = check_tenant_name(body.tenant)
    rows = {(bill.queue, bill.minute): bill.costs for bill in body.bills}
    await call.context.dispatcher.put_bills(tenant, rows)
    return call.answer(Nothing())


def _time(name: str, text: str | None, default: int) -> int:
    """Unix milliseconds, or a date and time as ISO 8601 has it (of UTC unless it says other)."""
    if text is None:
        return default
    if text.isascii() and text.isdigit():
        found = int(text[:20])
    else:
        try:
            date = datetime.fromisoformat(text.replace(" ", "+"))
            zoned = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
            found = int(zoned.timestamp() * 1000)
        except (ValueError, OverflowError):
            found = -1
    if not 0 <= found <= MAX_INT:
        raise BadRequest(
            f"{name} is not a time: Unix milliseconds, or such as 2026-11-16T12:00:00Z"
        )
    return found
