"""The embedded store's speed and growth: publish, lease, ack through the dispatcher on SQLite.

    python -m bench.embedded            everything: about ten minutes and 6 GB of disk
    python -m bench.embedded --quick    a hundredth of the backlog

Every publish is answered after its fsync, and so is every ack. Producers number their messages as
the SDKs do. Memory is what the process has resident; the figures of growth are ratios inside one
run, measured in turns, because machines and their disks drift.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from bench.load import Consumer, Producers, drain
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore

WINDOW_S = 60
"""Dedup window: for so long the disk also keeps what producers might repeat."""
CONFIG = QueueConfig(max_messages=100_000_000, dead_letter="", dedup_window_ms=1_000 * WINDOW_S)
RATE = 80_000
SINGLE_MS = 2.0
MEMORY_MIB = 32
REOPEN_S = 3.0
GROWTH = 1.20
QUEUES = 3.0
MANY = 1_000


def say(name: str, figure: str, reached: bool, target: str) -> None:
    print(f"  {name:44s} {figure:>14s}   {target}: {'reached' if reached else 'NOT REACHED'}")
    sys.stdout.flush()


def resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[SqliteStore, Dispatcher]]:
    store = await SqliteStore.open(folder)
    try:
        async with open_dispatcher(store) as dispatcher:
            yield store, dispatcher
    finally:
        await store.close()


async def queue_of(dispatcher: Dispatcher, name: str) -> OpenQueue:
    await dispatcher.ensure("default", name, CONFIG)
    return await dispatcher.open("default", name)


# Speed


async def speed(folder: Path, part: int) -> None:
    async with serving(folder) as (_, dispatcher):
        queue = await queue_of(dispatcher, "speed")
        rates = [await turnover([queue], 400_000 // part) for _ in range(5)]
        rate = statistics.median(rates)
        say("256 in flight, batches of 64, messages/s", f"{rate:,.0f}", rate >= RATE, f"{RATE:,}")
        p50, p99 = await singles(queue, 2_000 // min(part, 4))
        figure = f"{p50:.2f} / {p99:.2f}"
        say("one by one, p50 / p99 ms", figure, p50 < SINGLE_MS, f"p50 < {SINGLE_MS:.0f}")


async def turnover(queues: list[OpenQueue], total: int) -> float:
    """Messages per second, from publish to confirmed ack, with a consumer on every queue."""
    consumers = [Consumer(queue) for queue in queues]
    producers = Producers(queues, random.Random(1))
    began = time.perf_counter()
    await producers.run(total)
    await drain(consumers, total)
    rate = total / (time.perf_counter() - began)
    for consumer in consumers:
        consumer.end()
    return rate


async def singles(queue: OpenQueue, count: int) -> tuple[float, float]:
    producers = Producers([queue], random.Random(1), in_flight=1, batch=1)
    times = []
    consumer = Consumer(queue)
    for _ in range(count):
        began = time.perf_counter()
        await producers.run(1)
        times.append(1_000 * (time.perf_counter() - began))
        await trio.sleep(0.001)
    await drain([consumer], count)
    consumer.end()
    times.sort()
    return statistics.median(times), times[len(times) * 99 // 100]


async def many_queues(folder: Path, part: int) -> None:
    async with serving(folder) as (_, dispatcher):
        total = 200_000 // min(part, 4)
        one = [await queue_of(dispatcher, "one")]
        many = [await queue_of(dispatcher, f"many{number}") for number in range(MANY)]
        await turnover(many, total)  # their first messages make lanes and buckets
        ratios = []
        for _ in range(3):
            base = await turnover(one, total)
            ratios.append(base / await turnover(many, total))
        ratio = statistics.median(ratios)
        name = f"{MANY:,} queues at random, dearer than one by"
        say(name, f"{ratio:.2f}", ratio < QUEUES, f"< {QUEUES:.0f}")


# Growth


async def fill(folder: Path, backlog: int) -> None:
    """Store a backlog, and say what that did to the process."""
    async with serving(folder) as (_, dispatcher):
        queue = await queue_of(dispatcher, "big")
        await turnover([await queue_of(dispatcher, "warm")], 200_000)
        before = resident_mib()
        began = time.perf_counter()
        done = 0
        while done < backlog:
            share = min(1_000_000, backlog - done)
            await Producers([queue], random.Random(done)).run(share)
            done += share
        rate = backlog / (time.perf_counter() - began)
        print(f"  {f'backlog of {backlog:,}: filled at, messages/s':44s} {rate:14,.0f}")
        added = resident_mib() - before
        name = f"backlog of {backlog:,}: memory, MiB more"
        say(name, f"{added:.1f}", added < MEMORY_MIB, f"< {MEMORY_MIB}")


async def reopen(folder: Path, backlog: int) -> None:
    """From nothing to the first delivery."""
    before = resident_mib()
    began = time.perf_counter()
    async with serving(folder) as (_, dispatcher):
        queue = await queue_of(dispatcher, "big")
        consumer = Consumer(queue, acks=False)
        await consumer.wait_delivered(1)
        took = time.perf_counter() - began
        consumer.end()
        name = f"backlog of {backlog:,}: reopened in, s"
        say(name, f"{took:.2f}", took < REOPEN_S, f"< {REOPEN_S:.0f}")
        added = resident_mib() - before
        name = f"backlog of {backlog:,}: reopened with, MiB"
        say(name, f"{added:.1f}", added < 2 * MEMORY_MIB, f"< {2 * MEMORY_MIB}")


async def growth(folder: Path, backlog: int, part: int) -> None:
    """The cost of a message behind a small and behind a big backlog, in turns."""
    async with serving(folder) as (_, dispatcher):
        small, big = await queue_of(dispatcher, "small"), await queue_of(dispatcher, "big")
        await Producers([small], random.Random(1)).run(1_000)
        total = 400_000 // min(part, 4)
        ratios = []
        for _ in range(7):
            base = await turnover([small], total)
            ratios.append(base / await turnover([big], total))
        ratio = statistics.median(ratios)
        name = f"cost of a message, backlog 1,000 → {backlog:,}"
        say(name, f"{ratio:.2f}", ratio < GROWTH, f"< {GROWTH:.2f}")


async def head_reads(folder: Path, acks: int) -> None:
    """How long a page at the head takes, before and after many acks."""
    async with serving(folder) as (store, dispatcher):
        queue = await queue_of(dispatcher, "big")
        before = await head_read(store, queue)
        consumer = Consumer(queue)
        await drain([consumer], acks)
        consumer.end()
        await trio.sleep(5)  # for what was dropped to be swept
        after = await head_read(store, queue)
        name = f"head read after {acks:,} acks, slower by"
        say(name, f"{after / before:.2f}", after / before < GROWTH, f"< {GROWTH:.2f}")


async def head_read(store: SqliteStore, queue: OpenQueue) -> float:
    """Seconds, the median of many: find the head as a new owner does, and read its first page."""
    [shard] = queue.shards
    times = []
    for _ in range(200):
        began = time.perf_counter()
        buckets = (await store.outline(shard.key)).buckets
        head = next(bucket for bucket in buckets if not bucket.drained)
        await store.settlements(shard.key, head.key)
        await store.segments(shard.key, head.key, head.first, 100)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def space(folder: Path, wait_s: int) -> None:
    """Drain all, and see the disk given back."""
    async with serving(folder) as (store, dispatcher):
        for row in await dispatcher.list("default"):
            await dispatcher.open("default", row.name)
        queue = await queue_of(dispatcher, "big")
        peak = store.stats().database_bytes
        left = (await dispatcher.stats("default", "big")).stored
        consumer = Consumer(queue, credit=10_000)
        began = time.perf_counter()
        await drain([consumer], left)
        rate = left / (time.perf_counter() - began)
        print(f"  {f'drained {left:,} at, messages/s':44s} {rate:14,.0f}")
        consumer.end()
        drained = time.perf_counter()
        while (now := store.stats().database_bytes) > peak / 10:
            if time.perf_counter() > drained + wait_s:
                break
            await trio.sleep(0.2)
        took = time.perf_counter() - drained
        name = f"disk after draining, MiB of {peak >> 20:,}"
        say(name, f"{now >> 20:,}", now < peak / 10, "< a tenth")
        print(f"  {'… given back after, s':44s} {took:14.1f}")


# All of it


def in_process(*args: object) -> None:
    """A measurement of its own process: memory is measured from a fresh start."""
    subprocess.run([sys.executable, "-m", "bench.embedded", *map(str, args)], check=True)


PHASES: dict[str, Callable[..., object]] = {
    "speed": speed, "many_queues": many_queues, "fill": fill, "reopen": reopen,
    "growth": growth, "head_reads": head_reads, "space": space,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.embedded", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the backlog")
    parser.add_argument("--data", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--phase", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.phase:
        name, folder, *numbers = args.phase
        trio.run(partial(PHASES[name], Path(folder), *map(int, numbers)))  # type: ignore[arg-type]
        return
    part = 100 if args.quick else 1
    place = tempfile.mkdtemp(prefix="pushlane-bench-", dir=args.data or ".")
    try:
        print("the embedded store: publish, lease, ack; 200-byte bodies, fsync before each answer")
        in_process("--phase", "speed", f"{place}/speed", part)
        in_process("--phase", "many_queues", f"{place}/many", part)
        for backlog in (1_000_000 // part, 10_000_000 // part):
            folder = f"{place}/{backlog}"
            in_process("--phase", "fill", folder, backlog)
            in_process("--phase", "reopen", folder, backlog)
        in_process("--phase", "growth", folder, backlog, part)
        in_process("--phase", "head_reads", folder, 1_000_000 // part)
        in_process("--phase", "space", folder, 2 if args.quick else 2 * WINDOW_S)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
