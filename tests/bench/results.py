"""Made-up results."""

from __future__ import annotations

from bench.gateway.machine import Shape
from bench.gateway.result import Machine, Measured, Numbers, Own, Result
from bench.gateway.systems import SYSTEMS

LABELS = {each.name: each.label for each in SYSTEMS}


def flow(rate: float, server_cpu_s: float = 1.0) -> Numbers:
    return Numbers(rate=rate, messages=100_000, server_cpu_s=server_cpu_s, client_cpu_s=2.0)


def paced(p50_ms: float, p99_ms: float) -> Numbers:
    return Numbers(p50_ms=p50_ms, p99_ms=p99_ms, messages=6_000)


def made(rates: dict[str, float], own: Own | None = None) -> Result:
    """A result of systems with these rates."""
    systems = [
        Measured(name, LABELS[name], True, [flow(rate)], [flow(rate)], [paced(1.25, 4.5)])
        for name, rate in rates.items()
    ]
    shape = Shape(2, 24, "6.1.0", "3.11.7", "20.20.2")
    machine = Machine(shape, (0.5, 0.4, 0.3), (1.5, 1.0, 0.5), 0.75, 0.01)
    return Result("0123456789", "2026-11-16", False, machine, systems, own or Own(), [])
