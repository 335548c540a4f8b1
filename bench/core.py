"""The core's speed: publish, lease, deliver, ack, through a shard and the memory store.

    python -m bench.core            everything
    python -m bench.core --quick    a tenth of the work

One process, one core. Each figure is the median of several rounds; the ratios of one run mean
more than its absolute numbers, which depend on the machine and on who else is using it.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.effects import (
    Append,
    Deliver,
    Drop,
    Mark,
    Page,
    Settle,
    SettleTicket,
    WriteNote,
)
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.bucket import ShardKey
from pushlane_storage.memory import MemoryTables
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig

WALL = 1_800_000_000_000
BODY = b'{"text": "' + b"x" * 188 + b'"}'
BATCH = 64
ROUNDS = 5
TARGETS = {"batches of 64": 300_000, "one by one": 60_000}
GROWTH = 1.20


class Lane:
    """A queue with one consumer, driven by hand."""

    def __init__(self, tables: MemoryTables, name: str, credit: int = 256) -> None:
        self.tables = tables
        self.key = ShardKey(name, 0)
        config = QueueConfig(max_messages=100_000_000)
        setup = Setup(self.key, name, config, f"{name}.dead", 1, random.Random(1).random)
        self.shard = Shard(setup, Recovered(), Moment(0, WALL))
        self.sub = Subscription(
            f"{name}-P", "session", credit, 30_000, explicit=False, ack_none=False
        )
        self.now = 0
        self.number = 1
        """The next message's, as a producer counts: the SDKs number all of theirs."""

    def consume(self) -> None:
        self.shard.attach(self.sub)

    def publish(self, count: int, calls: int) -> None:
        wall = WALL + self.now
        for _ in range(calls):
            low, self.number = self.number, self.number + count
            messages = [
                Message(BODY, wall, False, None, None, None, "p", low + n) for n in range(count)
            ]
            self.shard.publish(messages, self.now)

    def ack(self, deliveries: list[Deliver], singly: bool) -> int:
        """Ack what was delivered, as runs or one by one."""
        shard, sub, now, done = self.shard, self.sub, self.now, 0
        for delivery in deliveries:
            for run in delivery.runs:
                count = len(run.messages)
                done += count
                if singly:
                    for n in range(run.n, run.n + count):
                        shard.settle(sub, 1, ACK, [(sub.prefix, n, n)], SettleTicket(), now)
                else:
                    last = run.n + count - 1
                    shard.settle(sub, 1, ACK, [(sub.prefix, run.n, last)], SettleTicket(), now)
        return done

    def work(self) -> list[Deliver]:
        """Carry out effects until there are none; the deliveries among them."""
        shard, tables, key, now = self.shard, self.tables, self.key, self.now
        deliveries: list[Deliver] = []
        while effects := shard.effects(now):
            for effect in effects:
                if type(effect) is Append:
                    tables.append(key, effect.segment, effect.opens)
                    shard.appended(effect, now)
                elif type(effect) is Settle:
                    tables.settle(key, effect.rows)
                    shard.settled(effect, now)
                elif type(effect) is Deliver:
                    deliveries.append(effect)
                elif type(effect) is Page:
                    found = tables.segments(key, effect.bucket, effect.start, effect.limit)
                    shard.paged(effect, found, now)
                elif type(effect) is Mark:
                    tables.mark_bucket(key, effect.bucket)
                elif type(effect) is Drop:
                    tables.drop(key, effect.key)
                elif type(effect) is WriteNote:
                    tables.write_note(key, effect.note)
                    shard.noted(effect)
        return deliveries


def turnover(queues: list[Lane], total: int, size: int, calls: int) -> float:
    """Messages per second through these queues, in turn."""
    singly = size == 1
    waiting = {}
    for queue in queues:  # a queue's first message makes its lane and bucket: not in the figures
        queue.publish(size, 1)
        queue.ack(queue.work(), singly)
        waiting[id(queue)] = queue.work()
    done, turn = 0, 0
    began = time.perf_counter()
    while done < total:
        queue = queues[turn % len(queues)]
        turn += 1
        queue.publish(size, calls)
        deliveries = waiting[id(queue)] + queue.work()
        done += queue.ack(deliveries, singly)
        waiting[id(queue)] = queue.work()
    return done / (time.perf_counter() - began)


def once(total: int, size: int, calls: int) -> float:
    return turnover(fresh(), total, size, calls)


def fresh(queues: int = 1, backlog: int = 0) -> list[Lane]:
    tables = MemoryTables()
    made = [Lane(tables, f"q{number}") for number in range(queues)]
    for queue in made:
        for _ in range(backlog // 1_000):
            queue.publish(1_000, 1)
            queue.work()
        queue.consume()
    return made


def measure(rounds: int, run: Callable[[], float]) -> float:
    figures = []
    for _ in range(rounds):
        gc.collect()
        figures.append(run())
    return statistics.median(figures)


def interleaved(rounds: int, small: Callable[[], float], big: Callable[[], float]) -> float:
    """How much dearer a message is in the big case: measured in turns, against drifting load."""
    ratios = []
    for _ in range(rounds):
        gc.collect()
        base = small()
        gc.collect()
        ratios.append(base / big())
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.core", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    part = 10 if parser.parse_args().quick else 1

    print("publish, lease, deliver, ack; 200-byte bodies; messages/s, one core")
    for name, size, calls, total in (
        ("batches of 64", BATCH, 1, 400_000),
        ("one by one", 1, BATCH, 100_000),
    ):
        rate = measure(ROUNDS, partial(once, total // part, size, calls))
        verdict = "reached" if rate >= TARGETS[name] else "NOT REACHED"
        print(f"  {name:24s} {rate:10,.0f}   target {TARGETS[name]:,}: {verdict}")

    print("cost of a message, compared within one run (below 1.20 wanted)")
    big = 1_000_000 // part
    growth = interleaved(
        3,
        lambda: turnover(fresh(backlog=1_000), 400_000 // part, BATCH, 1),
        lambda: turnover(fresh(backlog=big), 400_000 // part, BATCH, 1),
    )
    _verdict(f"backlog 1,000 → {big:,}", growth)
    many = 1_000 // part
    growth = interleaved(
        3,
        lambda: turnover(fresh(1), 400_000 // part, BATCH, 1),
        lambda: turnover(fresh(many), 400_000 // part, BATCH, 1),
    )
    _verdict(f"1 → {many:,} queues", growth)


def _verdict(name: str, growth: float) -> None:
    verdict = "reached" if growth < GROWTH else "NOT REACHED"
    print(f"  {name:24s} {growth:10.2f}   target {GROWTH:.2f}: {verdict}")


if __name__ == "__main__":
    main()
