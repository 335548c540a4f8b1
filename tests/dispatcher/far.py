"""Shards whose owner is far away: calls and answers are on their way for a while.

Each way keeps its order; a test says when the next thing arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from pushlane_dispatcher.shard.port import ShardPort

Way = deque[Callable[[], None]]


class FarShard:
    """As a caller sees it."""

    def __init__(self, shard: ShardPort) -> None:
        self.key = shard.key
        self.there: Way = deque()
        self.back: Way = deque()
        self._shard = shard
        self._sinks: dict[Any, _Sink] = {}

    def _call(self, name: str, *args: Any, **options: Any) -> None:
        self.there.append(partial(getattr(self._shard, name), *args, **options))

    def _answering(self, answer: Callable[..., None]) -> Callable[..., None]:
        return lambda *values: self.back.append(partial(answer, *values))

    def _sink(self, sink: Any) -> _Sink:
        return self._sinks.setdefault(sink, _Sink(sink, self.back))

    def attach(self, sink: Any, wish: Any, answer: Any) -> None:
        self._call("attach", self._sink(sink), wish, self._answering(answer))

    def resume(self, prefix: str, held: Any, sink: Any, answer: Any) -> None:
        self._call("resume", prefix, held, self._sink(sink), self._answering(answer))

    def detach(self, prefix: str, sink: Any, resume_ms: int) -> None:
        self._call("detach", prefix, self._sink(sink), resume_ms)

    def unsubscribe(self, prefix: str, sink: Any) -> None:
        self._call("unsubscribe", prefix, self._sink(sink))

    def end(self, prefix: str, sink: Any) -> None:
        self._call("end", prefix, self._sink(sink))

    def credit(self, prefix: str, sink: Any, credit: int, answer: Any = None) -> None:
        told = None if answer is None else self._answering(answer)
        self._call("credit", prefix, self._sink(sink), credit, told)

    def settle(
        self, prefix: str, generation: int, act: Any, receipts: Any, answer: Any, *,
        silently: bool = False,
    ) -> None:  # fmt: skip
        told = self._answering(answer)
        self._call("settle", prefix, generation, act, receipts, told, silently=silently)


class _Sink:
    """The owner's end of a sink."""

    def __init__(self, sink: Any, back: Way) -> None:
        self._sink = sink
        self._back = back

    def __getattr__(self, name: str) -> Callable[..., None]:
        say = getattr(self._sink, name)
        return lambda *values: self._back.append(partial(say, *values))


class FarQueue:
    """An open queue, as a feed sees it."""

    def __init__(self, queue: Any) -> None:
        self.row = queue.row
        self.shards = [FarShard(shard) for shard in queue.shards]

    @property
    def ways(self) -> list[Way]:
        """Those on which something is."""
        ways = [way for shard in self.shards for way in (shard.there, shard.back)]
        return [way for way in ways if way]
