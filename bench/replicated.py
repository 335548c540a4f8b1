"""Pushlane on Cassandra and Redis beside Pushlane on its embedded store, on one machine.

    python -m bench.replicated                 everything: about 14 minutes, 4 GB of disk
    python -m bench.replicated --quick         a short run, to see that everything works
    python -m bench.replicated --only NAME …   rate, opening, heads, memory

One Cassandra node that answers after its fsync (`commitlog_sync: batch`) and one Redis share the
cores with the server and the load generator. Java compiles what runs often, so a load that isn't
measured goes before.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from bench.embedded import resident_mib
from bench.gateway import node
from bench.gateway.measure import numbers, served
from bench.gateway.process import raise_limits
from bench.gateway.result import Numbers
from bench.gateway.systems import PUSHLANE, System, Target, nothing, serving
from bench.load import Consumer, Producers, drain
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_leases.url import open_leases
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.queue import QueueConfig
from pushlane_storage.settlement import BucketState
from pushlane_storage.url import open_store
from tools.services.cassandra import running_cassandra
from tools.services.cassandra_files import Options
from tools.services.redis import running_redis

SHARE = 0.30
STORED_MS = 10.0
OPEN_S = 5.0
HEADS = 1.5
MEMORY = 1.05
PACE = 500
PAGE = 100
CONFIG = QueueConfig(max_messages=100_000_000, dead_letter="")
JAVA = Options(sync="batch", quick=False, heap_mb=1_024)


class Plan(msgspec.Struct, frozen=True):
    rounds: int = 3
    warm_s: float = 30.0
    run_s: float = 5.0
    backlog: int = 1_000_000
    acked: tuple[int, ...] = (100_000, 1_000_000)
    reads: int = 200
    minutes: float = 10.0


WHOLE = Plan()
QUICK = Plan(rounds=1, warm_s=2.0, run_s=1.0, backlog=20_000, acked=(2_000, 20_000), minutes=0.2)


class Urls(NamedTuple):
    store: str
    leases: str


@contextmanager
def services() -> Iterator[Urls]:
    with running_cassandra(1, JAVA, on_disk=True) as ring, running_redis() as cache:
        yield Urls(ring.url("bench"), cache.url)


def say(name: str, figure: str, reached: bool, target: str) -> None:
    print(f"  {name:52s} {figure:>12s}   {target}: {'reached' if reached else 'NOT REACHED'}")
    sys.stdout.flush()


def tell(name: str, figure: str) -> None:
    print(f"  {name:52s} {figure:>12s}", flush=True)


# Through the whole server, in turns with the embedded store


def rate(urls: Urls, plan: Plan) -> None:
    replicated = System(
        "replicated",
        "Pushlane on Cassandra and Redis",
        True,
        lambda folder: serving(folder, "--store", urls.store, "--leases", urls.leases),
        nothing,
    )
    rates: dict[tuple[str, int], list[Numbers]] = {}
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-", dir=".") as place:
        with served(replicated, Path(place).resolve()) as target:
            flow(target, 4, plan.warm_s)
            tell("warmed up for, s", f"{plan.warm_s:.0f}")
        for turn, each in itertools.product(range(plan.rounds), (PUSHLANE, replicated)):
            with served(each, Path(place).resolve()) as target:
                flow(target, 1, 1.0)
                for count in (1, 4):
                    found = flow(target, count, plan.run_s)
                    rates.setdefault((each.name, count), []).append(found)
                if each is replicated:
                    rates.setdefault(("paced", turn), []).append(pace(target, plan.run_s))
    for count in (1, 4):
        compare(rates["pushlane", count], rates["replicated", count], f"{count} × {count}")
    paced = [each for (name, _), found in rates.items() if name == "paced" for each in found]
    stored = statistics.median(each.stored_p50_ms for each in paced)
    name = f"{PACE} messages/s: publish to answer, p50 ms"
    say(name, f"{stored:.2f}", stored < STORED_MS, f"< {STORED_MS:.0f}")
    p50, p99 = (statistics.median(getattr(each, f"p{n}_ms") for each in paced) for n in (50, 99))
    tell(f"{PACE} messages/s: publish to delivery, p50 / p99 ms", f"{p50:.2f} / {p99:.2f}")


def flow(target: Target, count: int, run_s: float) -> Numbers:
    found = node.measure(
        target, "throughput", f"flow{count}", producers=count, consumers=count,
        window=256, credit=256, warm_s=1.0, run_s=run_s, drain_s=60.0,
    )  # fmt: skip
    return numbers(found)


def pace(target: Target, run_s: float) -> Numbers:
    found = node.measure(
        target, "latency", "paced", rate=PACE, credit=256, warm_s=1.0, run_s=run_s, drain_s=60.0
    )
    return numbers(found)


def compare(embedded: list[Numbers], replicated: list[Numbers], shape: str) -> None:
    base, found = (statistics.median(each.rate for each in rows) for rows in (embedded, replicated))
    tell(f"{shape}: embedded, messages/s", f"{base:,.0f}")
    tell(f"{shape}: on Cassandra and Redis, messages/s", f"{found:,.0f}")
    say(f"{shape}: share", f"{found / base:.0%}", found / base >= SHARE, f"≥ {SHARE:.0%}")
    cost = statistics.median(1e6 * each.server_cpu_s / each.messages for each in replicated)
    tell(f"{shape}: server CPU, µs a message", f"{cost:.1f}")


# Through the dispatcher


@asynccontextmanager
async def dispatching(urls: Urls) -> AsyncIterator[tuple[Backend, Dispatcher]]:
    async with open_store(urls.store) as store:
        leases = open_leases(urls.leases)
        try:
            async with open_dispatcher(store, leases) as dispatcher:
                yield store, dispatcher
        finally:
            with trio.CancelScope(shield=True):
                await leases.close()


async def queue_of(dispatcher: Dispatcher, name: str) -> OpenQueue:
    await dispatcher.ensure("default", name, CONFIG)
    return await dispatcher.open("default", name)


def opening(urls: Urls, plan: Plan) -> None:
    """The backlog was published just now, so its dedup window is read as well."""
    in_process("fill", urls, plan.backlog)
    in_process("open", urls, plan.backlog)


async def fill(urls: Urls, backlog: int) -> None:
    async with dispatching(urls) as (_, dispatcher):
        began = time.perf_counter()
        queue = await queue_of(dispatcher, "backlog")
        await Producers([queue], random.Random(1)).run(backlog)
        seconds = time.perf_counter() - began
        tell(f"backlog of {backlog:,}: filled at, messages/s", f"{backlog / seconds:,.0f}")


async def reopen(urls: Urls, backlog: int) -> None:
    """From a process that runs to the first delivery."""
    async with dispatching(urls) as (_, dispatcher):
        began = time.perf_counter()
        consumer = Consumer(await queue_of(dispatcher, "backlog"), acks=False)
        await consumer.wait_delivered(1)
        took = time.perf_counter() - began
        consumer.end()
        name = f"backlog of {backlog:,}: shard opened in, s"
        say(name, f"{took:.2f}", took < OPEN_S, f"< {OPEN_S:.0f}")


def heads(urls: Urls, plan: Plan) -> None:
    in_process("heads", urls, plan.reads, *plan.acked)


async def head_reads(urls: Urls, reads: int, *acked: int) -> None:
    """In turns with a queue in which nothing was ever acked; in both, a page is at the head."""
    async with dispatching(urls) as (store, dispatcher):
        fresh, used = await queue_of(dispatcher, "fresh"), await queue_of(dispatcher, "used")
        producers, consumer, done = Producers([used], random.Random(1)), Consumer(used), 0
        await Producers([fresh], random.Random(1)).run(PAGE)
        for count in acked:
            await producers.run(count - done)
            await drain([consumer], count)
            consumer.end()
            await producers.run(PAGE)
            await trio.sleep(5)  # for what is drained to be dropped
            await compare_heads(store, fresh, used, reads, count)
            consumer = Consumer(used)
            await drain([consumer], PAGE)
            done = consumer.acked = count
        consumer.end()


async def compare_heads(
    store: Backend, fresh: OpenQueue, used: OpenQueue, reads: int, count: int
) -> None:
    pages: dict[bool, list[float]] = {False: [], True: []}
    owners: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * reads):
        queue = (fresh, used)[turn % 2]
        owner, page = await head_read(store, queue.shards[0].key)
        owners[queue is used].append(owner)
        pages[queue is used].append(page)
    for name, times in (("a page at the head", pages), ("a new owner finds it", owners)):
        base, found = (statistics.median(times[which]) for which in (False, True))
        tell(f"{name}, nothing / {count:,} acked before, ms", f"{base:.2f} / {found:.2f}")
        if times is pages:
            say("… slower by", f"{found / base:.2f}", found / base < HEADS, f"< {HEADS:.1f}")


async def head_read(store: Backend, shard: ShardKey) -> tuple[float, float]:
    """Milliseconds: to find the head as a new owner does, and to read its first page."""
    began = time.perf_counter()
    head = next(bucket for bucket in (await store.outline(shard)).buckets if not bucket.drained)
    state = BucketState()
    for row in await store.settlements(shard, head.key):
        state.apply(row)
    found = time.perf_counter()
    start = 1 + max((high for _, high in state.settled), default=head.first - 1)
    segments = await store.segments(shard, head.key, start, PAGE)
    assert segments[0].first == start
    return 1_000 * (found - began), 1_000 * (time.perf_counter() - found)


# Memory


def memory(urls: Urls, plan: Plan) -> None:
    in_process("memory", urls, round(60 * plan.minutes))


async def flat(urls: Urls, seconds: int) -> None:
    """What the process has resident, in the first and the last fifth of the time."""
    async with dispatching(urls) as (_, dispatcher):
        queue = await queue_of(dispatcher, "memory")
        producers, consumer, total = Producers([queue], random.Random(1)), Consumer(queue), 0
        began = time.perf_counter()
        found: list[float] = []
        while (now := time.perf_counter() - began) < seconds:
            await producers.run(20_000)
            total += 20_000
            await drain([consumer], total)
            if now > seconds / 5:  # before that, caches fill
                found.append(resident_mib())
        consumer.end()
        share = max(1, len(found) // 4)
        before, after = statistics.median(found[:share]), statistics.median(found[-share:])
        tell(f"messages in {seconds:,} s", f"{total:,}")
        tell("resident, first / last fifth, MiB", f"{before:.0f} / {after:.0f}")
        say("… more by", f"{after / before:.3f}", after / before < MEMORY, f"< {MEMORY}")


# All of it


def in_process(phase: str, urls: Urls, *values: int) -> None:
    """A measurement of its own process."""
    command = [sys.executable, "-m", "bench.replicated", "--phase", phase, *urls]
    subprocess.run([*command, *map(str, values)], check=True)


PHASES: dict[str, Callable[..., object]] = {
    "fill": fill, "open": reopen, "heads": head_reads, "memory": flat
}  # fmt: skip
PARTS: dict[str, Callable[[Urls, Plan], None]] = {
    "rate": rate, "opening": opening, "heads": heads, "memory": memory
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replicated", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", default=list(PARTS))
    parser.add_argument("--phase", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.phase:
        name, store, leases, *values = args.phase
        trio.run(PHASES[name], Urls(store, leases), *map(int, values))  # type: ignore[arg-type]
        return
    node.install()
    raise_limits()
    print("Pushlane on one Cassandra node (commitlog_sync: batch) and Redis; 200-byte bodies")
    with services() as urls:
        for name in args.only:
            PARTS[name](urls, QUICK if args.quick else WHOLE)


if __name__ == "__main__":
    main()
