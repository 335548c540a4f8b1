"""Publishing: as the frame `publish`, in one request.

`Idempotency-Key: K` makes a request safe to repeat: message n gets the dedup id `K:n`. When not one
message was stored the answer is an error, so that nobody takes a 200 for success.
"""

from __future__ import annotations

import trio
from starlette.responses import Response

from pushlane.wire.errors import BadRequest, PushlaneError, error_for
from pushlane.wire.frames import Failed, Publish, PublishMessage
from pushlane.wire.validate import check_publish
from pushlane_dispatcher.port import Publication, Waiter
from pushlane_gateway.http.call import Call
from pushlane_gateway.http.errors import Refused
from pushlane_gateway.http.objects import PublishAnswer, PublishBody
from pushlane_gateway.session.publishing import Batch

HEADER = "idempotency-key"
NOBODY = 1
"""A frame has an id, a request needs none."""


async def publish(call: Call) -> Response:
    context = call.context
    context.check_going()
    body: PublishBody = await call.body()
    messages: list[PublishMessage] = [*body.messages]
    _set_dedup(messages, call.header(HEADER), context.limits.dedup_bytes)
    frame = Publish(NOBODY, call.queue, messages)
    failed = _check(call, frame)
    batch = Batch(frame, failed, None, context.clock.wall())
    since = trio.current_time()
    waiter: Waiter[Publication | None] = Waiter()
    with context.door(call.identity, waiter, make=True) as door:
        door.publish(call.queue, batch.messages, batch.lanes, waiter)
        publication = await waiter.wait()
    context.metrics.publish_seconds.observe(trio.current_time() - since)
    return _answer(call, batch, publication)


def _set_dedup(messages: list[PublishMessage], key: str | None, most: int) -> None:
    if key is None:
        return
    if not key.isascii() or not key.isprintable() or not key:
        raise BadRequest("Idempotency-Key is not printable ASCII")
    if len(f"{key}:{len(messages)}") > most:
        raise BadRequest(
            f"Idempotency-Key is too long: with the index at most {most}", limit="dedup_bytes"
        )
    for index, message in enumerate(messages):
        if message.dedup is not None:
            raise BadRequest(f"messages[{index}]: dedup can't be combined with Idempotency-Key")
        message.dedup = f"{key}:{index}"


def _check(call: Call, frame: Publish) -> list[Failed]:
    if any(message.seq is not None for message in frame.messages):
        raise BadRequest("seq is for sessions: use dedup or Idempotency-Key")
    failed = check_publish(frame, call.context.limits, has_producer=False)
    if failed:
        call.context.metrics.limits.add("message_bytes", len(failed))
    return failed


def _answer(call: Call, batch: Batch, publication: Publication | None) -> Response:
    metrics = call.context.metrics
    published = batch.answer(NOBODY, publication)
    if publication is not None:
        for error in publication.failed.values():
            if error.limit is not None:
                metrics.limits.add(error.limit)
    duplicates, failed = published.duplicates, published.failed
    metrics.published += len(published.ids) - len(duplicates) - len(failed)
    if len(failed) == len(published.ids):
        raise Refused(_worst(failed), failed=failed)
    for fault in failed:
        metrics.errors.add(fault.code)
    return call.answer(PublishAnswer(published.ids, duplicates, failed))


def _worst(failed: list[Failed]) -> PushlaneError:
    """The first; but one with an unknown outcome goes before those that changed nothing."""
    errors = [error_for(fault.code, fault.message, fault.retry_ms) for fault in failed]
    return max(errors, key=lambda error: error.info.outcome_unknown)
