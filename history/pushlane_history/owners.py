"""Owners: who serves messages, under which epochs."""

from __future__ import annotations

from pushlane_history.event import EPOCH_SHIFT, Open


class Owners:
    """Of one shard, or of all that there is: epochs of different shards can't be compared."""

    __slots__ = ("at", "count", "epoch", "nodes")

    def __init__(self) -> None:
        self.count = 0
        self.epoch = 0
        """The newest one."""
        self.at = 0
        """When that was opened."""
        self.nodes: dict[int, set[str]] = {}
        """By epoch: the nodes that opened it and did not crash since."""

    def opened(self, e: Open) -> None:
        self.count += 1
        self.at = e.at
        self.epoch = max(self.epoch, e.epoch)
        self.nodes.setdefault(e.epoch, set()).add(e.node)

    def crashed(self, node: str) -> None:
        for nodes in self.nodes.values():
            nodes.discard(node)

    def copy(self) -> Owners:
        other = Owners()
        other.count, other.epoch, other.at = self.count, self.epoch, self.at
        other.nodes = {epoch: set(nodes) for epoch, nodes in self.nodes.items()}
        return other

    def zombie(self, fence: int, newest: int) -> bool:
        """Whether a grant below the newest one is a predecessor's that doesn't know it is over.

        Such a grant is void from the start (its receipt is never taken into `receipts`), so it
        hurts nobody. A node that crashed can't be one.
        """
        epoch = fence >> EPOCH_SHIFT
        return epoch < newest >> EPOCH_SHIFT and bool(self.nodes.get(epoch))

    def outdated(self, fence: int) -> bool:
        """Like `zombie`, where no newer grant tells the newest epoch."""
        return self.zombie(fence, self.epoch << EPOCH_SHIFT)
