"""The pipe: one thread with one connection, and what gathered for it in one round trip."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import trio
from redis.exceptions import TryAgainError

from pushlane_leases.interface import LeaseCacheError, NotNow
from pushlane_leases.redis.calls import Call, Command, Waiting, answer
from pushlane_leases.redis.cluster import Cluster
from pushlane_leases.redis.connection import Connection


class Pipe:
    def __init__(self, connection: Connection | Cluster, pending: int, commands: int) -> None:
        """`pending` calls may wait, about `commands` go in one round trip."""
        self._connection = connection
        self._commands = commands
        self._waiting = Waiting(pending)
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="pushlane-redis", daemon=True)
        self._thread.start()

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands. `LeaseCacheError` when there are none, or a bad one."""
        if not commands:
            await trio.lowlevel.checkpoint()
            return []
        await trio.lowlevel.checkpoint_if_cancelled()
        call = Call(commands)
        self._waiting.put(call)
        return await call.wait(self._waiting.withdraw)

    async def close(self) -> None:
        """What waits is refused, what is under way is waited for: at most its time-outs."""
        left = self._waiting.close()
        for call in left:
            call.error = LeaseCacheError("the lease cache closes")
        answer(self._token, left)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        while calls := self._waiting.take(self._commands):
            self._exchange(calls)
            answer(self._token, calls)
        self._connection.close()

    def _exchange(self, calls: list[Call]) -> None:
        try:
            replies = self._connection.exchange([each for call in calls for each in call.commands])
        except Exception as error:
            for call in calls:
                call.error = _fault(error)
            return
        at = 0
        for call in calls:
            end = at + len(call.commands)
            call.replies = replies[at:end]
            at = end
            refused = [reply for reply in call.replies if isinstance(reply, Exception)]
            if refused:
                call.error = _fault(refused[0])


def _fault(error: Exception) -> LeaseCacheError:
    """A fresh one for each call: a raised exception collects the stack of its raiser."""
    known = isinstance(error, LeaseCacheError)
    kind = NotNow if isinstance(error, TryAgainError) else LeaseCacheError
    fault = kind(str(error) if known else f"{type(error).__name__}: {error}")
    fault.__cause__ = error
    return fault
