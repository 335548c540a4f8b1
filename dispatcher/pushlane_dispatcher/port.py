"""The port: all that a gateway may know of the dispatcher, besides `node`, which opens one.

A gateway publishes and subscribes through a `Door`, and settles through the `Feed` that it got. A
request without a session is the same: its `Receive` is the sink of a feed, and it settles through
the door. Questions and orders about whole queues are methods of the `Dispatcher`. Only values cross
the port: no shard and no subscription of the core. Fan-in over shards, sharing credit, attaching
again and finding whose a receipt is happen behind it.
"""

from __future__ import annotations

from pushlane_dispatcher.browsing.backlog import Page
from pushlane_dispatcher.browsing.dropping import MOST as MOST_BUCKETS
from pushlane_dispatcher.browsing.dropping import BucketName, Dropped
from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.browsing.standing import Standing
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.feed import Feed, FeedSink, Kept, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.callers.receive import Receive, Received
from pushlane_dispatcher.cluster.sessions import KeptSession, SharedSessions
from pushlane_dispatcher.cluster.status import ClusterStatus, Load
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_dispatcher.core.places import Claim, Claims, Places
from pushlane_dispatcher.usage.report import UsagePoint
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.message import Dead, Message, owned_producer
from pushlane_storage.queue import QueueConfig, QueueRow

__all__ = [
    "ACK",
    "MOST_BUCKETS",
    "START",
    "Act",
    "BucketName",
    "Caller",
    "Claim",
    "Claims",
    "ClusterStatus",
    "ConsumerInfo",
    "Dead",
    "Door",
    "Dropped",
    "Explanation",
    "Feed",
    "FeedSink",
    "Gather",
    "Kept",
    "KeptSession",
    "Load",
    "Message",
    "Page",
    "Places",
    "Publication",
    "QueueConfig",
    "QueueRow",
    "Receive",
    "Received",
    "Redrive",
    "Run",
    "SharedSessions",
    "Spec",
    "Standing",
    "Stats",
    "UsagePoint",
    "Waiter",
    "owned_producer",
]
