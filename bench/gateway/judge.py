"""The targets, and whether a run reached them.

What was not measured in a run is not judged. Two systems of the comparison are not started here;
what they reached on another day stands in for them, and is called recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.gateway.result import Check, Measured, Own, Result, cpu_per_100k, median

OVER_NATS = 3.0
OVER_RABBITMQ = 10.0
RECORDED = {"Mosquitto QoS 1": (6_300, 6_700), "nsqd (TCP, memory)": (38_900, 45_800)}
"""Messages a second, one producer and consumer and four of each: 16 November 2026, two cores."""
P50_MS, P99_MS = 3.0, 10.0
CPU_US = 25.0
IDLE_KIB = 20.0
SPREAD = 0.10
SLOWED = 0.05
DRAIN = 0.80
SDK_RATE = 15_000
SHAPES = (("one", "1 × 1"), ("four", "4 × 4"))


def judge(result: Result) -> list[Check]:
    checks: list[Check] = []
    ours = result.system("pushlane")
    if ours is not None and ours.whole:
        checks += _compared(result, ours)
        checks += _alone(ours)
    return checks + list(_own(result.own, ours))


def _compared(result: Result, ours: Measured) -> Iterator[Check]:
    for shape, label in SHAPES:
        rate = median(getattr(ours, shape), "rate")
        for name, times in (("nats", OVER_NATS), ("rabbitmq", OVER_RABBITMQ)):
            peer = result.system(name)
            if peer is not None and peer.whole:
                ratio = rate / median(getattr(peer, shape), "rate")
                yield Check(
                    f"{label}: times {peer.label}", f"{ratio:.1f}", f"≥ {times:.0f}", ratio >= times
                )
        best, who = _best(result, shape)
        name = f"{label}: messages/s, ahead of all others"
        yield Check(name, f"{rate:,.0f}", f"> {best:,.0f} ({who})", rate > best)


def _best(result: Result, shape: str) -> tuple[float, str]:
    index = [name for name, _ in SHAPES].index(shape)
    others = [(float(rates[index]), f"{who}, recorded") for who, rates in RECORDED.items()]
    others += [
        (median(getattr(each, shape), "rate"), each.label)
        for each in result.systems
        if each.name != "pushlane" and each.whole
    ]
    return max(others)


def _alone(ours: Measured) -> Iterator[Check]:
    p50, p99 = median(ours.paced, "p50_ms"), median(ours.paced, "p99_ms")
    yield Check("1,000 messages/s: p50, ms", f"{p50:.2f}", f"< {P50_MS:.0f}", p50 < P50_MS)
    yield Check("1,000 messages/s: p99, ms", f"{p99:.2f}", f"< {P99_MS:.0f}", p99 < P99_MS)
    for shape, label in SHAPES:
        cost = 10 * cpu_per_100k(getattr(ours, shape), "server")
        name = f"{label}: server CPU, µs a message"
        yield Check(name, f"{cost:.1f}", f"< {CPU_US:.0f}", cost < CPU_US)


def _own(own: Own, ours: Measured | None) -> Iterator[Check]:
    if own.idle is not None:
        kib = own.idle.kib
        name = f"an idle consumer of {own.idle.consumers:,}, KiB"
        yield Check(name, f"{kib:.1f}", f"< {IDLE_KIB:.0f}", kib < IDLE_KIB)
    if own.fairness:
        spread = median(own.fairness, "spread")
        name = f"{own.fairness[0].consumers} equal consumers, spread"
        yield Check(name, f"{spread:.1%}", f"≤ {SPREAD:.0%}", spread <= SPREAD)
    if own.stuck:
        ratio = _ratio(own)
        name = "one stuck reader slows the others by"
        yield Check(name, f"{1 - ratio:.1%}", f"≤ {SLOWED:.0%}", ratio >= 1 - SLOWED)
    if own.backlog is not None and ours is not None and ours.whole:
        share = own.backlog.rate / median(ours.one, "rate")
        name = f"draining {own.backlog.messages:,}, share of the live rate"
        yield Check(name, f"{share:.0%}", f"≥ {DRAIN:.0%}", share >= DRAIN)
    if own.sdk:
        rate = median(own.sdk, "rate")
        name = "asyncio SDK, messages/s"
        yield Check(name, f"{rate:,.0f}", f"≥ {SDK_RATE:,}", rate >= SDK_RATE)


def _ratio(own: Own) -> float:
    ratios = sorted(each.beside / each.free for each in own.stuck)
    return ratios[len(ratios) // 2]
