"""What only tests see of an open queue: the runners behind its shards' ports."""

from __future__ import annotations

from pushlane_dispatcher.browsing.all_shards import add_up
from pushlane_dispatcher.core.explain import Stats
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.runner import ShardRunner


def runners_of(queue: OpenQueue) -> list[ShardRunner]:
    """Of all its shards, which are open here."""
    found = [shard for shard in queue.shards if isinstance(shard, ShardRunner)]
    assert len(found) == len(queue.shards)
    return found


def stats_now(queue: OpenQueue) -> Stats:
    """Of all its shards, without waiting."""
    return add_up([runner.stats() for runner in runners_of(queue)])
