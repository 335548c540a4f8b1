"""The status of a cluster, as one of its nodes sees it: values for operators.

Times are durations: nodes have clocks of their own. What nobody could tell in time is None.
"""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["up", "unreachable", "draining", "not_placed"]
Trouble = Literal[
    "unreachable", "not_placed", "same_name", "same_address", "clock", "version", "store",
    "refused",
]  # fmt: skip
Breaker = Literal["closed", "open", "half_open"]


class Load(msgspec.Struct, frozen=True):
    """What clients of a node do. Messages are counted from its start on."""

    sessions: int = 0
    published: int = 0
    delivered: int = 0


class Report(msgspec.Struct, array_like=True, frozen=True):
    """What a node tells others of itself. It travels: a later version adds fields at its end."""

    sessions: int = 0
    published: float = 0.0
    """Messages a second."""
    delivered: float = 0.0
    shards: int = 0
    """Open there."""
    links: int = 0
    """Nodes to which it has links."""
    fencings: int = 0
    takeovers: int = 0
    moves: int = 0
    oldest_ms: int | None = None
    lag_ms: int | None = None
    roster_ms: int | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster."""

    name: str
    process: str
    """The id of this run of the server."""
    this: bool
    """It is the one that answers."""
    state: State
    """`unreachable` and `not_placed` take no queues; `draining` gives its own away."""
    state_ms: int
    """For how long."""
    why: str | None = None
    """Why it can't be reached."""
    version: str
    address: str
    """Where other nodes reach it."""
    url: str
    """Where clients reach it."""
    roles: tuple[str, ...]
    weight: int
    slots: int | None = None
    """Of 256: it has them now. An idle queue's slot belongs to nobody."""
    placed: int
    """Slots that are to be its own when somebody uses their queues."""
    clock_ahead_ms: int | None = None
    """By how much its clock is ahead of this node's, when they were linked."""
    breaker: Breaker | None = None
    """Of the links from the node that answers. `closed`: they carry requests. `open`: they broke or
    can't be had, and no request goes there until the next attempt; `half_open`: it is made now."""
    latency_ms: float | None = None
    """How long its last answer took."""
    sessions: int | None = None
    published: float | None = None
    """Messages a second, over the last seconds, that its clients publish …"""
    delivered: float | None = None
    """… and that they get."""
    shards: int | None = None
    """Open there."""
    links: int | None = None
    """Other nodes to which it has links."""
    fencings: int | None = None
    """Nodes that it fenced since its start."""
    takeovers: int | None = None
    """Slots of nodes that were gone, which it took over."""
    moves: int | None = None
    """Slots that it gave up because they belong elsewhere."""
    oldest_ms: int | None = None
    """How long ago the message was published that waits longest there, of the queues that are open;
    null: none waits, or nobody could tell."""
    lag_ms: int | None = None
    """How long its oldest write has waited for the store. What others read there of its queues is
    so far behind."""
    roster_ms: int | None = None
    """How long ago it last read who is there."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was there: it left, or was fenced."""

    name: str
    process: str
    why: str
    ago_ms: int


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator should look at."""

    code: Trouble
    nodes: tuple[str, ...]
    """Their names."""
    text: str


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as one of its nodes sees it."""

    shared: bool
    """False: the store is this server's own. There is no cluster, and no node in the list."""
    cluster: str = ""
    """Its name."""
    nodes: tuple[NodeStatus, ...] = ()
    orphans: int | None = None
    """Slots whose owner is gone, and that nobody has asked for since."""
    gone: tuple[Gone, ...] = ()
    problems: tuple[Problem, ...] = ()


ALONE = ClusterStatus(shared=False)
