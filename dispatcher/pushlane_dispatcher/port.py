"""The port: all that a gateway may know of the dispatcher, besides `node`, which opens one.

A gateway publishes and subscribes through a `Door`, and settles through the `Feed` that it got; a
request without a session receives and settles through `Receiving`. Questions and orders about
whole queues are methods of the `Dispatcher`. Only values cross the port: no shard and no
subscription of the core. Fan-in over shards, sharing credit, attaching again and finding whose a
receipt is happen behind it.
"""

from __future__ import annotations

from pushlane_dispatcher.backlog import Page
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_dispatcher.core.places import Claim, Claims, Places
from pushlane_dispatcher.door import Caller, Door
from pushlane_dispatcher.feed import Feed, FeedSink, Spec
from pushlane_dispatcher.gather import Gather
from pushlane_dispatcher.grant import Granted
from pushlane_dispatcher.poll import Poll, PollOptions
from pushlane_dispatcher.publication import Publication
from pushlane_dispatcher.receiving import Receiving
from pushlane_dispatcher.redrive import Redrive
from pushlane_dispatcher.retention import MOST as MOST_BUCKETS
from pushlane_dispatcher.retention import BucketName, Dropped
from pushlane_dispatcher.standing import Standing
from pushlane_dispatcher.usage_report import UsagePoint
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
    "ConsumerInfo",
    "Dead",
    "Door",
    "Dropped",
    "Explanation",
    "Feed",
    "FeedSink",
    "Gather",
    "Granted",
    "Message",
    "Page",
    "Places",
    "Poll",
    "PollOptions",
    "Publication",
    "QueueConfig",
    "QueueRow",
    "Receiving",
    "Redrive",
    "Run",
    "Spec",
    "Standing",
    "Stats",
    "UsagePoint",
    "owned_producer",
]
