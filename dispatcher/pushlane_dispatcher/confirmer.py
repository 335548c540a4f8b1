"""Confirming what is not stored: an extension counts only while its grantor owns the shard.

A store in which nobody else can take the shard needs no question. Where one can, the owner asks
after it has granted. While it asks, the next extensions gather: they share the next question.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane_dispatcher.core.effects import Confirm
from pushlane_dispatcher.repeat import until_decided
from pushlane_dispatcher.settings import Settings
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import SharedStore


class Confirmer:
    def __init__(self, store: SharedStore, key: ShardKey, settings: Settings) -> None:
        self._store = store
        self._key = key
        self._settings = settings
        self._waiting: list[Confirm] = []
        self._busy = False

    def add(self, effect: Confirm) -> bool:
        """Whether `run` must be started now."""
        self._waiting.append(effect)
        starts, self._busy = not self._busy, True
        return starts

    async def run(self, answer: Callable[[Confirm], None]) -> None:
        """Until nothing waits. `Fenced` and `Undecided` come through: nobody is answered then."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            await until_decided(lambda: self._store.confirm(self._key), self._settings)
            for effect in group:
                answer(effect)
        self._busy = False
