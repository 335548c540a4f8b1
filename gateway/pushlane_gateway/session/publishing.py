"""Publishing: a publish frame as messages to store, and what became of them as its answer.

The form was checked before; messages that are too large stand alone. A body is copied out of its
frame here, once: what is kept must not keep the frame.
"""

from __future__ import annotations

from msgspec import UNSET

from pushlane.wire.body import copy_body
from pushlane.wire.frames import Failed, Publish, Published, PublishMessage
from pushlane.wire.limits import DEFAULT_LANE
from pushlane_dispatcher.port import Message, Publication


class Batch:
    """The messages of one frame that go on, and where they stand in it."""

    __slots__ = ("failed", "indexes", "lanes", "messages", "size")

    def __init__(
        self, frame: Publish, failed: list[Failed], producer: str | None, now: int
    ) -> None:
        self.failed = failed
        self.messages: list[Message] = []
        self.lanes: list[int] | None = None
        """By message; None: the default for all."""
        self.indexes: list[int] | None = None
        """By message: its index in the frame; None: nothing was left out."""
        self.size = 0
        """Bytes of bodies and data."""
        found = frame.messages
        if failed:
            refused = {fault.index for fault in failed}
            self.indexes = [index for index in range(len(found)) if index not in refused]
            found = [found[index] for index in self.indexes]
        messages, size, prioritized = self.messages, 0, False  # plain names: it is done often
        for message in found:
            made = make_message(message, producer, now)
            size += len(made.body)
            messages.append(made)
            if message.priority is not None:
                prioritized = True
        self.size = size
        if prioritized:
            self.lanes = [
                DEFAULT_LANE if message.priority is None else message.priority for message in found
            ]

    def answer(self, id: int, publication: Publication | None) -> Published:
        """None: nothing was left to publish."""
        if self.indexes is None and publication is not None and not publication.failed:
            return Published(id, publication.ids, publication.duplicates)
        return self._partly(id, publication)

    def _partly(self, id: int, publication: Publication | None) -> Published:
        ids: list[str | None] = [None] * (len(self.messages) + len(self.failed))
        duplicates: list[int] = []
        failed = list(self.failed)
        if publication is not None:
            indexes = range(len(ids)) if self.indexes is None else self.indexes
            for n, index in enumerate(indexes):
                ids[index] = publication.ids[n]
            duplicates = [indexes[n] for n in publication.duplicates]
            for n, error in publication.failed.items():
                failed.append(Failed(indexes[n], error.code, error.message, error.retry_ms))
        failed.sort(key=lambda fault: fault.index)
        return Published(id, ids, duplicates, failed)


def make_message(message: PublishMessage, producer: str | None, now: int) -> Message:
    """`now` is the wall clock's, in milliseconds."""
    body, seq = message.body, message.seq
    if body is UNSET:
        assert message.data is not None  # it was checked
        content, is_data = message.data, True
    else:
        content, is_data = copy_body(body), False
    if (
        message.key is None
        and message.dedup is None
        and message.headers is None
        and message.delay_ms is None
        and message.ttl_ms is None
        and message.event_at is None
    ):
        if seq is None:
            return Message(content, now, is_data)
        return Message(content, now, is_data, None, None, None, producer, seq)
    return Message(
        content,
        now,
        is_data,
        message.key,
        message.headers,
        message.dedup,
        producer if seq is not None else None,
        seq or 0,
        now + message.delay_ms if message.delay_ms else 0,
        now + message.ttl_ms if message.ttl_ms is not None else 0,
        message.event_at,
    )
