"""Planted bugs: a campaign must find each of them, or it would not find the real ones.

What a process handed to the kernel survives its death, so a missing fsync doesn't show here (the
power-loss test finds that). These show: answers that run ahead of the write, things that a restart
forgets, and a server that takes a receipt's word for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher import node
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.gather import Gather
from pushlane_gateway.http import settle
from pushlane_storage.interface import PromptStore, Store

DELAY_S = 0.05
"""How much too early an early answer is."""


def early_published() -> None:
    """A publish is acknowledged before its message is handed to SQLite."""
    _change_store("append")


def early_settled() -> None:
    """An ack is confirmed before its settlement is."""
    _change_store("settle")


def forgotten_ids() -> None:
    """A restart forgets dedup ids and the numbers of producers."""

    def restore(self: Dedup, *args: object) -> None:
        pass

    put(Dedup, "restore", restore)


def trusted_receipts() -> None:
    """Whoever has had a message may still ack it."""

    def done(self: Gather, ticket: SettleTicket, error: PushlaneError | None) -> None:
        self.one_less(error)

    put(Gather, "__call__", done)
    put(settle, "render_all", lambda spans: [])


def unkept_keys() -> None:
    """Messages of one key don't wait for each other."""

    def claim(self: Keys, key: str, entry: Entry) -> State:
        return State.READY

    put(Keys, "claim", claim)


PLANTS: dict[str, Callable[[], None]] = {
    "early-published": early_published,
    "early-settled": early_settled,
    "forgotten-ids": forgotten_ids,
    "trusted-receipts": trusted_receipts,
    "unkept-keys": unkept_keys,
}

CAUGHT: dict[str, set[str]] = {
    "early-published": {"ack_before_durable", "lost"},
    "early-settled": {"grant_after_ack"},
    "forgotten-ids": {"dedup", "unacked_unknown"},
    "trusted-receipts": {"stale_settle"},
    "unkept-keys": {"key_order"},
}
"""The rules of which at least one must say so."""


def put(owner: object, name: str, value: object) -> None:
    """Replace something that is there."""
    assert hasattr(owner, name), f"{owner} has no {name}: the plant does nothing"
    setattr(owner, name, value)


def _change_store(early: str) -> None:
    real = node._open_store

    async def open_store(*args: Any) -> Store:
        return cast(Store, Early(await real(*args), early))

    put(node, "_open_store", open_store)


class Early:
    """A store that says "done" before it is.

    Everything is done in the order in which it was asked for, so that nobody but a kill can tell.
    """

    def __init__(self, store: Store, early: str) -> None:
        self._store = store
        self._early = early
        self._last = trio.Event()
        self._last.set()

    def __getattr__(self, name: str) -> Any:
        if hasattr(PromptStore, name):
            raise AttributeError(name)  # all go through the calls that can be awaited
        call = getattr(self._store, name)

        async def in_turn(*args: Any, **options: Any) -> Any:
            before, self._last = self._last, trio.Event()
            return await self._do(before, self._last, 0.0, partial(call, *args, **options))

        async def at_once(*args: Any, **options: Any) -> None:
            before, self._last = self._last, trio.Event()
            do = partial(call, *args, **options)
            due = trio.current_time() + DELAY_S
            trio.lowlevel.spawn_system_task(self._do, before, self._last, due, do)

        return at_once if name == self._early else in_turn

    async def _do(
        self, before: trio.Event, done: trio.Event, due: float, call: Callable[[], Any]
    ) -> Any:
        try:
            await before.wait()
            await trio.sleep_until(due)
            return await call()
        finally:
            done.set()
