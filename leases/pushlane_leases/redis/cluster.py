"""A Redis Cluster: every command goes to the node that has its hash slot.

All keys of a command have one hash tag, so its first key says where it belongs. The map of slots is
read from any node that answers, and again when a node says that a slot has moved, or doesn't
answer. A node that is gone fails its own commands only. While a slot is being moved its keys are
looked for where they were, and then where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.connection import Connection

Node = tuple[str, int]
SLOTS = 16_384
TRIES = 4
"""With a fresh map, or to where a slot is on its way; a node there that must learn a script first
sends us back once. What is not found then is an error, and no harm."""
_ASKING: Command = ("ASKING",)


class Cluster:
    """Like a `Connection`, over many."""

    def __init__(self, seed: Node, connect: Callable[[Node], Connection]) -> None:
        self._seed = seed
        self._connect = connect
        self._connections: dict[Node, Connection] = {}
        self._owners: list[Node | None] | None = None
        """Who has which slot; None: ask again."""
        self._told: dict[int, Node] = {}
        """Who has a slot now, by nodes that lost it: who is asked may not have heard yet."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The answers; whatever went wrong with a command stands in its place.

        `LeaseCacheError` when no node can say who has which slot.
        """
        replies: list[Any] = [None] * len(commands)
        left, redirected = list(range(len(commands))), dict[int, Node]()
        for tries in range(TRIES):
            self._ask_all(commands, left, redirected, replies)
            left, redirected = self._read_redirections(left, replies)
            if tries:  # a node that is gone was looked for once
                left = [at for at in left if not isinstance(replies[at], LeaseCacheError)]
            if not left:
                break
        return replies

    def _ask_all(
        self,
        commands: Sequence[Command],
        wanted: Sequence[int],
        redirected: Mapping[int, Node],
        replies: list[Any],
    ) -> None:
        """Each node once. One that was named by ASK takes a command only behind an ASKING."""
        for node, group in self._by_node(commands, wanted, redirected).items():
            lot = [
                each
                for at in group
                for each in ([_ASKING, commands[at]] if at in redirected else [commands[at]])
            ]
            found = iter(self._ask(node, lot))
            for at in group:
                if at in redirected:
                    next(found)
                replies[at] = next(found)

    def _read_redirections(
        self, asked: Sequence[int], replies: Sequence[Any]
    ) -> tuple[list[int], dict[int, Node]]:
        """Which of the commands are worth another try, and to whom ASK sends some of them."""
        left, redirected = [], {}
        for at in asked:
            reply = replies[at]
            if isinstance(reply, MovedError | LeaseCacheError):
                self._owners = None
                if isinstance(reply, MovedError) and reply.host:
                    self._told[reply.slot_id] = (reply.host, reply.port)
            elif isinstance(reply, AskError):
                redirected[at] = (reply.host, reply.port)
            else:
                continue
            left.append(at)
        return left, redirected

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _by_node(
        self, commands: Sequence[Command], wanted: Iterable[int], redirected: Mapping[int, Node]
    ) -> dict[Node | None, list[int]]:
        if self._owners is None:
            self._owners = self._read_owners()
            for slot, owner in self._told.items():
                self._owners[slot] = owner
            self._told.clear()
        groups: dict[Node | None, list[int]] = {}
        for at in wanted:
            node = redirected.get(at) or self._owners[slot_of(commands[at])]
            groups.setdefault(node, []).append(at)
        return groups

    def _ask(self, node: Node | None, commands: list[Command]) -> list[Any]:
        try:
            if node is None:
                raise LeaseCacheError("no node of the cluster has this hash slot")
            return self._connection(node).exchange(commands)
        except LeaseCacheError as error:
            return [error] * len(commands)

    def _connection(self, node: Node) -> Connection:
        if node not in self._connections:
            self._connections[node] = self._connect(node)
        return self._connections[node]

    def _read_owners(self) -> list[Node | None]:
        fault: Exception | None = None
        for node in dict.fromkeys([*self._connections, self._seed]):
            [rows] = self._ask(node, [("CLUSTER", "SLOTS")])
            if not isinstance(rows, Exception):
                owners = read_slots(rows, node[0])
                self._keep({owner for owner in owners if owner is not None})
                return owners
            fault = rows
        raise LeaseCacheError(f"no node of the cluster answers: {fault}")

    def _keep(self, nodes: set[Node]) -> None:
        """Connections to nodes that own nothing any more are closed."""
        for node in self._connections.keys() - nodes:
            self._connections.pop(node).close()


def slot_of(command: Command) -> int:
    """The hash slot of the first key: a script's keys come after their number."""
    key = command[3] if command[0] == "EVALSHA" else command[1]
    assert isinstance(key, str)
    return int(key_slot(key.encode()))


def read_slots(rows: Iterable[Any], asked: str) -> list[Node | None]:
    """What CLUSTER SLOTS answers. A node that doesn't know its own address is the one asked."""
    owners: list[Node | None] = [None] * SLOTS
    for low, high, (host, port, *_), *_ in rows:
        owner = ((host or b"").decode() or asked, int(port))
        owners[low : high + 1] = [owner] * (high + 1 - low)
    return owners
