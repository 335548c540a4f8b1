"""Where each shard stood when it last wrote usage: how many bytes lay in it, and when that was.

It follows from its tally (see `pushlane_storage.tally`) and the row of the tally's minute. The base
of a minute never changes; its row does, while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from pushlane_spark.frames import LONG, TEXT, struct
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.tally import STORED, unpack_tally
from pushlane_storage.usage import Usage, UsageKey, unpack

STANDINGS = struct(tenant=TEXT, queue=TEXT, node=TEXT, minute=LONG, base=LONG, stored=LONG)
"""When `minute` began, `base` bytes were stored and not settled, and at its end (or by now, if that
is not over) `stored`."""

Stored = tuple[str, str, int, str, bytes]
"""A usage row: tenant, queue, minute, node, counters."""


class Standing(NamedTuple):
    tenant: str
    queue: str
    node: str
    minute: int
    base: int
    stored: int


def standings_of(
    tallies: Iterable[Stored], find: Callable[[list[UsageKey]], Iterable[Stored]]
) -> list[Standing]:
    """`find` reads the rows of these keys, as far as they are there. Shards of which nobody keeps
    a tally any more are left out."""
    bases: dict[UsageKey, int] = {}
    for row in tallies:
        usage = _usage(row)
        tally = unpack_tally(usage)
        if tally is not None:
            key = msgspec.structs.replace(usage.key, minute=tally.minute)
            bases[key] = tally.base.get(STORED, 0)
    changes = {usage.key: usage.counters.get(STORED, 0) for usage in map(_usage, find([*bases]))}
    return [
        Standing(key.tenant, key.queue, key.node, key.minute, base, base + changes.get(key, 0))
        for key, base in bases.items()
    ]


def _usage(row: Stored) -> Usage:
    tenant, queue, minute, node, counters = row
    key = UsageKey(tenant, queue, minute, node)
    try:
        return unpack(key, bytes(counters))
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the usage row {key} can't be read: {error}") from error
