"""Confirming what is not stored: it counts only while whoever says it owns the shard.

That is an extension, and the word that a message was stored before: its queue may have been deleted
since, and made again. A store in which nobody else can take the shard needs no question. Where one
can, the owner asks after it has decided. While it asks, the next ones gather: they share the next
question.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane_dispatcher.core.effects import Confirm, Published
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.repeat import until_decided
from pushlane_storage.bucket import ShardKey
from pushlane_storage.ownership import Ownership

Unstored = Confirm | Published
"""An answer that no write of this owner's proves."""


class Confirmer:
    def __init__(self, ownership: Ownership, key: ShardKey, settings: Settings) -> None:
        self._ownership = ownership
        self._key = key
        self._settings = settings
        self._waiting: list[Unstored] = []
        self._busy = False

    def add(self, effect: Unstored) -> bool:
        """Whether `run` must be started now."""
        self._waiting.append(effect)
        starts, self._busy = not self._busy, True
        return starts

    async def run(self, answer: Callable[[Unstored], None]) -> None:
        """Until nothing waits. `Fenced` and `Undecided` come through: nobody is answered then."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            await until_decided(lambda: self._ownership.confirm(self._key), self._settings)
            for effect in group:
                answer(effect)
        self._busy = False
