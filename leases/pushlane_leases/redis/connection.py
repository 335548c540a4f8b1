"""One connection to Redis, made when it is needed: many commands out, as many answers back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.connection import ConnectionInterface, ConnectionPool
from redis.exceptions import ConnectionError, NoScriptError, RedisError, ResponseError

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.entry import SCRIPTS


class Connection:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._wire: ConnectionInterface | None = None

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The answers; an error that Redis answered with stands in its command's place.

        `LeaseCacheError` when there is no answer. Scripts that Redis doesn't know, for it was
        restarted or flushed, are loaded and their commands repeated.
        """
        try:
            replies = self._send_again(commands)
            lost = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if lost:
                loads: list[Command] = [
                    ("SCRIPT", "LOAD", script.text) for script in SCRIPTS.values()
                ]
                repeated = self._send([*loads, *(commands[at] for at in lost)])[len(loads) :]
                for at, reply in zip(lost, repeated, strict=True):
                    replies[at] = reply
        except (RedisError, OSError) as error:
            raise LeaseCacheError(f"{type(error).__name__}: {error}") from error
        return replies

    def _send_again(self, commands: Sequence[Command]) -> list[Any]:
        """A connection that lay idle may have been lost: that is worth a second try.

        It repeats what may have been done. All commands may be repeated, in their order.
        """
        old = self._wire
        try:
            return self._send(commands)
        except ConnectionError:
            if old is None:
                raise
            return self._send(commands)

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        try:
            wire = self._connected()
            wire.send_packed_command(wire.pack_commands(commands))
            return [_reply(wire) for _ in commands]
        except BaseException:
            # Answers may still be on their way: nobody may take them for other commands'.
            self.close()
            raise

    def _connected(self) -> ConnectionInterface:
        if self._wire is None:
            self._wire = self._pool.make_connection()
            self._wire.connect()
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.disconnect()
            self._wire = None


def _reply(wire: ConnectionInterface) -> Any:
    try:
        return wire.read_response()
    except ResponseError as error:
        return error
