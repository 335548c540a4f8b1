"""Transfers: messages on their way from one shard to another queue.

A shard hands over a batch for a queue, and the next one when it knows what became of the first: the
core says what is tried again, and when. Dead letters make their queue when there is none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.callers.publication import Publication
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig, QueueRow

log = logging.getLogger(__name__)

Errors = Sequence[PushlaneError | None]
"""Why each message of a batch is not stored; None: it is."""
Send = Callable[[str, list[Message]], Awaitable[Errors]]
"""Publish to a queue of the same tenant."""
Publish = Callable[[str, str, list[Message]], Awaitable[Publication]]
Ensure = Callable[[str, str, QueueConfig], Awaitable[QueueRow]]


class Transfers:
    """Those of all shards of a process."""

    def __init__(self, publish: Publish, ensure: Ensure, message_bytes: int) -> None:
        """`message_bytes`: a dead-letter queue takes all that other queues can have taken."""
        self._publish = publish
        self._ensure = ensure
        self._letters = QueueConfig(dead_letter="", max_message_bytes=message_bytes)
        self._counts: Counter[str] = Counter(stored=0, postponed=0, refused=0)

    def numbers(self) -> dict[str, int]:
        """Messages that were stored elsewhere, that have to wait, that were refused for good."""
        return dict(self._counts)

    def of(self, tenant: str) -> Send:
        async def send(to: str, messages: list[Message]) -> Errors:
            errors = await self._try(tenant, to, messages)
            self._note(tenant, to, errors)
            return errors

        return send

    async def _try(self, tenant: str, to: str, messages: list[Message]) -> Errors:
        try:
            if any(message.dead is not None for message in messages):
                await self._make(tenant, to)
            publication = await self._publish(tenant, to, messages)
        except PushlaneError as error:
            return [error] * len(messages)
        return [publication.failed.get(index) for index in range(len(messages))]

    async def _make(self, tenant: str, to: str) -> None:
        try:
            await self._ensure(tenant, to, self._letters)
        except NotFound as error:  # it is being deleted: then it is made again
            raise Unavailable(str(error), retry_ms=1_000) from error

    def _note(self, tenant: str, to: str, errors: Errors) -> None:
        failed = [error for error in errors if error is not None]
        refused = [error for error in failed if not error.info.retry]
        self._counts["stored"] += len(errors) - len(failed)
        self._counts["refused"] += len(refused)
        self._counts["postponed"] += len(failed) - len(refused)
        if refused:
            text = "%d messages can't go to queue %s of %s: %s"
            log.warning(text, len(refused), to, tenant, refused[0])
        elif failed:
            text = "%d messages can't go to queue %s of %s now: %s"
            log.warning(text, len(failed), to, tenant, failed[0])
