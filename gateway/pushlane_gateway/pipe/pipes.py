"""The pipes of a server: opened, found, watched, forgotten.

A pipe that the session closed is kept for a while, for its client to fetch the close (twice, if the
first answer is lost). It gives way when there is no room for another. One that was never welcomed
is kept for a few seconds only: strangers come in any number.
"""

from __future__ import annotations

import logging
import secrets
from functools import partial

import trio

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.listener.counters import close_label
from pushlane_gateway.pipe.pipe import GONE, Pipe
from pushlane_gateway.session.sessions import Sessions

log = logging.getLogger(__name__)

RETRY_MS = 1_000


class Pipes:
    def __init__(self, sessions: Sessions, settings: HttpSettings, most_bytes: int) -> None:
        """`most_bytes`: what may wait in one pipe before it is cut."""
        self._sessions = sessions
        self._context = sessions.context
        self._metrics = sessions.context.metrics
        self._settings = settings
        self._most_bytes = most_bytes
        self._open: dict[str, Pipe] = {}
        self._closed: dict[str, Pipe] = {}
        """Those whose close may not have been heard, the oldest first."""
        self.admission = sessions.context.admission
        self.admission.limit("pipes", settings.pipes, "pipes")
        self._metrics.gauge("pipes", "Open pipes.", lambda: len(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def open(self, frames: list[bytes], authorization: str | None, peer: str) -> Pipe:
        """Begin one with its first frames. Raises Unavailable."""
        self._make_room()
        pipe = Pipe(
            f"{self._context.node}.{secrets.token_urlsafe(24)}",
            frames,
            answer_bytes=self._settings.answer_bytes,
            most_bytes=self._most_bytes,
            authorization=authorization,
            peer=peer,
        )
        self._open[pipe.id] = pipe
        self._metrics.pipes_opened += 1
        self._context.nursery.start_soon(self._run, pipe)
        self._look_at(pipe.id, trio.current_time() + self._settings.pipe_ms / 1000)
        return pipe

    def find(self, id: str) -> Pipe:
        """Raises NotFound."""
        pipe = self._open.get(id) or self._closed.get(id)
        if pipe is None:
            raise NotFound(GONE)
        return pipe

    @property
    def opened(self) -> list[Pipe]:
        return list(self._open.values())

    def _make_room(self) -> None:
        most = self._settings.pipes
        if len(self._open) + len(self._closed) < most:
            return
        if not self._closed:
            full = f"there are {most} pipes already: ask another server, or later"
            raise Unavailable(full, retry_ms=RETRY_MS, limit="pipes")
        del self._closed[next(iter(self._closed))]

    async def _run(self, pipe: Pipe) -> None:
        try:
            await self._sessions.handle(pipe)
        except Exception:
            log.exception("session of %s failed", pipe.peer)
            self._metrics.faults += 1
            pipe.close(1011, "internal")
        finally:
            self._left(pipe)

    def _left(self, pipe: Pipe) -> None:
        pipe.finish()
        assert pipe.end is not None
        self._metrics.pipe_closes.add(str(close_label(pipe.end.code)))
        if pipe.overflowed:
            self._metrics.limits.add("outbox_bytes")
        del self._open[pipe.id]
        if not pipe.is_forgotten:
            self._closed[pipe.id] = pipe
            if pipe.is_refused:
                self._look_at(pipe.id, trio.current_time() + self._patience(pipe))

    # Silence

    def _look_at(self, id: str, when: float) -> None:
        """By its name: a timer is not what keeps a pipe."""
        self._context.timers.at(when, partial(self._look, id))

    def _look(self, id: str) -> None:
        """Cut it if its client has been silent for too long; else look again."""
        pipe = self._open.get(id) or self._closed.get(id)
        if pipe is None:
            return
        now, patience = trio.current_time(), self._patience(pipe)
        since = now if pipe.quiet_since is None else pipe.quiet_since
        if now < since + patience:
            self._look_at(id, since + patience)
        elif self._closed.pop(id, None) is None:
            self._metrics.limits.add("pipe_ms")
            pipe.abort()
            self._look_at(id, now + patience)  # its session may take its time to leave
        elif pipe.is_refused and not pipe.told:
            self._metrics.limits.add("refused_pipe_ms")

    def _patience(self, pipe: Pipe) -> float:
        settings = self._settings
        return (settings.refused_pipe_ms if pipe.is_refused else settings.pipe_ms) / 1000
