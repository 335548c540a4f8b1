"""One call of a redrive: it goes through the shards of a queue, and each sends what is its own."""

from __future__ import annotations

import trio

from pushlane_dispatcher.browsing.backlog import begin
from pushlane_dispatcher.browsing.question import RedriveSpan, SpanRedriven
from pushlane_dispatcher.browsing.redrive import Redrive, Redriven
from pushlane_dispatcher.queues.open_queue import OpenQueue


async def redrive(queue: OpenQueue, wanted: Redrive, after: str = "") -> Redriven:
    """From `after` on. Those that come in after the first call stay."""
    cursor = await begin(queue, after)
    begun, spans, done = trio.current_time(), cursor.spans, SpanRedriven(0, 0)
    while spans and done.sent < wanted.max and not done.barred:
        elapsed = int((trio.current_time() - begun) * 1000)
        if elapsed >= wanted.budget_ms:
            break
        span = spans[0]
        order = RedriveSpan(wanted, span, done.sent, elapsed)
        done = await queue.shards[span.shard].ask(order)
        spans[0] = span.after(done.start)
        if spans[0].over:
            spans.pop(0)
    return Redriven(done.sent, cursor.text())
