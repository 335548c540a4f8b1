"""Transfers: messages on their way from this shard to other queues.

All that goes to one queue at a time travels as one publish; each target has its own task, so a
slow one holds up nobody else. Every failure is temporary here: the core tries again later, and
the dedup id keeps a repeat from being stored twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.effects import Transfer
from pushlane_storage.message import Message

log = logging.getLogger(__name__)

Send = Callable[[str, list[Message]], Awaitable[list[bool]]]
"""Publish to a queue; says of each message whether it is stored there."""


class Transfers:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._queues: dict[str, list[Transfer]] = {}
        """By target, while its task runs."""

    @property
    def busy(self) -> bool:
        return bool(self._queues)

    def add(self, transfer: Transfer) -> bool:
        """Whether `run` must be started for its target."""
        waiting = self._queues.get(transfer.to)
        if waiting is None:
            self._queues[transfer.to] = [transfer]
            return True
        waiting.append(transfer)
        return False

    async def run(self, to: str, answer: Callable[[Transfer, bool], None]) -> None:
        """Until nothing more waits for this target."""
        while batch := self._queues[to]:
            self._queues[to] = []
            stored = await self._try(to, [transfer.message for transfer in batch])
            for transfer, there in zip(batch, stored, strict=True):
                answer(transfer, there)
        del self._queues[to]

    async def _try(self, to: str, messages: list[Message]) -> list[bool]:
        try:
            return await self._send(to, messages)
        except PushlaneError as error:
            log.warning("%d messages can't go to %s now: %s", len(messages), to, error)
            return [False] * len(messages)
