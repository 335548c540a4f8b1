"""Repeating what a store could not do or would not say: how often, and until when.

Every write of the `Store` is idempotent for the same content, so one with an unknown outcome is
written again until it is decided. Waiting for ever would block a shard that another owner could
serve, hence the limit on deciding. Reads and tidying change nothing that anybody waits for to be
decided: they are repeated for as long as the shard lives. Also when the store says that what it
reads is damaged: a disk that fails for a moment looks the same, and to give up what can't be read
would lose what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import trio

from pushlane_dispatcher.core.backoff import ceiling
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreDamaged, StoreRefused, StoreUnknown

log = logging.getLogger(__name__)
T = TypeVar("T")


class Undecided(Exception):
    """The outcome of a write stayed unknown for too long: step down."""


def pauses(settings: Settings) -> Iterator[float]:
    """Seconds to wait between one try and the next."""
    tries = 0
    while True:
        tries += 1
        yield ceiling(tries, settings.repeat_base_ms, settings.repeat_max_ms) / 1000


def never() -> bool:
    """A refusal that is no way out: repeat."""
    return False


async def until_decided(
    write: Callable[[], Awaitable[None]],
    settings: Settings,
    undo: Callable[[], bool] = never,
    failed: Exception | None = None,
) -> bool:
    """Write until it is durable (True), or refused at every try so far and undone (False).

    `failed` is how a first try ended that was made already.

    A refusal after an unknown outcome decides nothing: the earlier try may have been stored. That
    the owner is `Fenced`, or its rows are damaged (`StoreDamaged`), comes through.
    """
    unknown = False
    with trio.move_on_after(settings.decide_ms / 1000):
        for pause in pauses(settings):  # pragma: no branch
            try:
                if failed is not None:
                    first, failed = failed, None
                    raise first
                await write()
            except StoreUnknown as error:
                unknown = True
                log.warning("unknown outcome, writing the same again: %r", error)
            except StoreRefused as error:
                if not unknown and undo():
                    return False
                log.warning("refused, writing the same again: %r", error)
            else:
                return True
            await trio.sleep(pause)
    raise Undecided


async def until_done(call: Callable[[], Awaitable[T]], settings: Settings) -> T:
    """Read or tidy until the store can do it."""
    for pause in pauses(settings):  # pragma: no branch
        try:
            return await call()
        except (StoreUnknown, StoreRefused) as error:
            log.warning("trying again: %r", error)
        except StoreDamaged as error:
            log.error("damaged, or the disk is failing; trying again: %r", error)
        await trio.sleep(pause)
    raise AssertionError("unreachable")  # pragma: no cover
