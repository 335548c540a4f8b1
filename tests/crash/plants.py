"""Planted bugs: a campaign must find each of them, or it would not find the real ones.

What a process handed to the kernel survives its death, so a missing fsync doesn't show here (the
power-loss test finds that). These show: answers that run ahead of the write, things that a restart
forgets, and a server that takes a receipt's word for it.

`python -m tests.crash.plants PLANT serve …` is the real server with such a bug in it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import trio

from pushlane.cli import main
from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher import node
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.life import State
from pushlane_gateway.http import receive
from pushlane_storage.interface import Backend, Outcome, StoreError
from pushlane_storage.outcome import outcome_of
from tests.powerloss.seams import InTurn

DELAY_S = 0.05
"""How much too early an early answer is."""


def early_published() -> None:
    """A publish is acknowledged before its message is handed to SQLite."""
    _change_store("append_soon")


def early_settled() -> None:
    """An ack is confirmed before its settlement is."""
    _change_store("settle_soon")


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
    put(receive, "render_all", lambda runs: [])


def keys_out_of_order() -> None:
    """Messages of one key don't wait for each other."""

    def claim(self: Keys, key: str, entry: Entry) -> State:
        return State.READY

    put(Keys, "claim", claim)


PLANTS: dict[str, Callable[[], None]] = {
    "early-published": early_published,
    "early-settled": early_settled,
    "forgotten-ids": forgotten_ids,
    "trusted-receipts": trusted_receipts,
    "keys-out-of-order": keys_out_of_order,
}

CAUGHT: dict[str, set[str]] = {
    "early-published": {"ack_before_durable", "lost"},
    "early-settled": {"grant_after_ack"},
    "forgotten-ids": {"dedup", "unacked_unknown"},
    "trusted-receipts": {"stale_settle"},
    "keys-out-of-order": {"key_order"},
}
"""The rules of which at least one must say so."""


def put(owner: object, name: str, value: object) -> None:
    """Replace something that is there."""
    assert hasattr(owner, name), f"{owner} has no {name}: the plant does nothing"
    setattr(owner, name, value)


def _change_store(early: str) -> None:
    real = node._store

    @asynccontextmanager
    async def store(*args: Any) -> AsyncIterator[Backend]:
        async with real(*args) as found:
            yield cast(Backend, Early(found, early))

    put(node, "_store", store)


Turn = tuple[trio.Event, trio.Event]
"""What is waited for, and what those behind wait for."""


class Early:
    """A store that says "done" before it is.

    Everything is done in the order in which it was asked for, so that nobody but a kill can tell.
    """

    def __init__(self, store: Backend, early: str) -> None:
        self._store = store
        self._early = early
        self._last = trio.Event()
        self._last.set()
        self.ownership = InTurn(store.ownership, self.in_turn)
        self.catalog = InTurn(store.catalog, self.in_turn)
        self.usage = InTurn(store.usage, self.in_turn)
        self.stats = store.stats

    def append_soon(self, *args: Any) -> None:
        self._write("append_soon", *args)

    def settle_soon(self, *args: Any) -> None:
        self._write("settle_soon", *args)

    def _write(self, name: str, *args: Any) -> None:
        *content, outcome = args
        write = partial(outcome_of, partial(getattr(self._store, name), *content))
        trio.lowlevel.spawn_system_task(self._answer, self._turn(), name, write, outcome)

    async def _answer(
        self, turn: Turn, name: str, write: Callable[[], Any], outcome: Outcome
    ) -> None:
        early = name == self._early
        if early:
            outcome(None)
        try:
            await self._do(turn, trio.current_time() + DELAY_S if early else 0.0, write)
        except StoreError as error:
            if not early:
                outcome(error)
        else:
            if not early:
                outcome(None)

    def __getattr__(self, name: str) -> Any:
        return self.in_turn(getattr(self._store, name))

    def in_turn(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def later(*args: Any, **options: Any) -> Any:
            return await self._do(self._turn(), 0.0, partial(call, *args, **options))

        return later

    def _turn(self) -> Turn:
        before, self._last = self._last, trio.Event()
        return before, self._last

    async def _do(self, turn: Turn, due: float, call: Callable[[], Any]) -> Any:
        before, done = turn
        try:
            await before.wait()
            await trio.sleep_until(due)
            return await call()
        finally:
            done.set()


if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)]()
    main()
