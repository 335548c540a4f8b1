"""The fence: whether what this process just stored counts.

A write of an owner counts when, after it was durable, the owner was not fenced. So a quorum read of
its own node row is begun after the write: if that shows no fence, the fence was not there on a
quorum when the read began, and whoever sets it later reads what was written before.

One read serves every write that was durable before it began. While it is under way the next group
gathers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.interface import Fenced, Outcome, StoreError, StoreUnknown


class Fence:
    def __init__(self, is_unfenced: Callable[[], Awaitable[bool]], name: str) -> None:
        self._is_unfenced = is_unfenced
        self._name = name
        self._waiting: list[Outcome] = []
        self._wake = trio.Event()
        self.is_down = False
        """It was seen: nothing counts any more, for good."""
        self.reads = 0
        self.served = 0
        """Writes that these reads confirmed."""

    def fault(self) -> Fenced:
        return Fenced(f"this process ({self._name}) was fenced by another one")

    def confirm_soon(self, done: Outcome) -> None:
        """Call back when a read that begins after this call has shown no fence."""
        self._waiting.append(done)
        self._wake.set()

    async def confirm(self) -> None:
        told = trio.Event()
        errors: list[Exception] = []

        def done(error: Exception | None) -> None:
            if error is not None:
                errors.append(error)
            told.set()

        self.confirm_soon(done)
        await told.wait()
        if errors:
            raise errors[0]

    async def run(self) -> None:
        """A task, for as long as the process uses this identity."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            group, self._waiting = self._waiting, []
            error: Exception | None = _CLOSED
            try:
                error = await self._look()
            finally:
                for done in group:
                    done(error)
            self.served += len(group)

    async def _look(self) -> Exception | None:
        if self.is_down:
            return self.fault()
        self.reads += 1
        try:
            self.is_down = not await self._is_unfenced()
        except StoreError as error:
            # What was written is durable; only whether it counts is not known.
            return StoreUnknown(f"stored, but not confirmed: {error}")
        return self.fault() if self.is_down else None

    def dismiss(self) -> None:
        """Nobody looks any more."""
        group, self._waiting = self._waiting, []
        for done in group:
            done(_CLOSED)


_CLOSED = StoreUnknown("stored, but not confirmed: the store is closed")
