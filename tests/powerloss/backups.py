"""Judging the backups in an image: each is whole, or none.

A backup that was confirmed before the cut must verify. One that was begun either verifies, or is
refused as unfinished; anything else would be a broken backup that looks like one. What verifies is
restored and compared with the history: what was acknowledged before it was begun must be in it, and
what had ended before that must have ended there, too. The same bytes are judged only once.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.ident import make_id
from pushlane_history import event as history
from pushlane_storage.errors import BackupError, BackupUnfinished
from pushlane_storage.sqlite.backup import verify
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.restore import restore
from pushlane_storage.sqlite.store import SqliteStore
from tests.powerloss.log import Deleting, Note
from tests.powerloss.looking import buckets_of, left_in
from tests.powerloss.workload import BACKUPS, STEPS_OF, TENANT

KNOWN = len(STEPS_OF[-1])
LIMITS = Limits(reserve_bytes=0, readers=1)


class Made(msgspec.Struct):
    """A backup, by the number of events before it was begun, and before it was confirmed."""

    begun: int
    confirmed: int | None = None
    judged: set[bytes] = msgspec.field(default_factory=set)
    """Digests of what was seen of it: most images have the same."""


class BackupJudge:
    def __init__(
        self,
        events: list[history.Event],
        notes: list[Note],
        clock: Clock,
        fault: Callable[[str], None],
    ) -> None:
        self._events = events
        self._deleting = {note.queue for note in notes if isinstance(note, Deleting)}
        self._clock = clock
        self._fault = fault

    async def judge(self, folder: Path, name: str, made: Made) -> None:
        place = folder / BACKUPS / name
        seen = digest_of(place) + bytes([made.confirmed is not None])
        if seen in made.judged:
            return
        try:
            verify(place, known=KNOWN)
        except BackupUnfinished:
            if made.confirmed is not None:
                self._fault(f"backup {name} was confirmed, and is not finished")
        except BackupError as error:
            self._fault(f"backup {name} is broken: {error}")
        else:
            await self._restore(place, folder / f"restored-{name}", made)
            made.judged.add(seen)

    async def _restore(self, backup: Path, place: Path, made: Made) -> None:
        restore(backup, place, now=self._clock.wall(), known=KNOWN)
        store = await SqliteStore.open(place, LIMITS, steps=STEPS_OF[-1])
        try:
            stored, left = await self._look(store)
        finally:
            await store.close()
        promised, ended = self._promised(made)
        if lost := promised - stored:
            self._fault(f"backup {backup.name} lacks what was acknowledged before: {lost}")
        if risen := ended & left:
            self._fault(f"backup {backup.name} has what had ended before: {risen}")

    async def _look(self, store: SqliteStore) -> tuple[set[str], set[str]]:
        """The ids that are stored, and those of them that have not ended."""
        stored: set[str] = set()
        left: set[str] = set()
        epoch = store.stats().epoch
        for row in await store.catalog.list(TENANT, "", 1_000):
            async for key, found in buckets_of(store, row, epoch, self._clock):
                first, lane = found.row.first, found.row.key.lane
                stored.update(
                    make_id(*key, lane, seq) for seq in range(first, first + found.row.count)
                )
                left.update(await left_in(store, key, found))
        return stored, left

    def _promised(self, made: Made) -> tuple[set[str], set[str]]:
        """The ids that were stored before it was begun and not ended until the end, and those
        that had ended before it was begun."""
        queues: dict[int, str] = {}
        there: set[str] = set()
        over: set[str] = set()
        ended: set[str] = set()
        for number, event in enumerate(self._events[: made.confirmed]):
            early = number < made.begun
            match event:
                case history.Publish():
                    queues[event.op] = event.queue
                case history.Published() if early and queues[event.op] not in self._deleting:
                    there.add(event.id)
                case history.Moved() if early and event.new_id:
                    there.add(event.new_id)
                case history.Ended():
                    over.add(event.id)
                    if early:
                        ended.add(event.id)
        return there - over, ended


def digest_of(folder: Path) -> bytes:
    """Of all that is in a folder, which may not be there."""
    digest = sha256()
    for path in sorted(folder.glob("*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()
