"""The result of a run, as it is written to JSON. Figures are medians over the rounds of a run."""

from __future__ import annotations

import statistics

import msgspec

from bench.gateway.machine import Shape


class Numbers(msgspec.Struct, omit_defaults=True):
    rate: float = 0.0
    """Messages a second."""
    messages: int = 0
    seconds: float = 0.0
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    missing: int = 0
    """Acknowledged, and not delivered in time."""
    again: int = 0
    """Delivered more than once."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    stored_p50_ms: float = 0.0
    """From a publish to its answer."""
    fill_rate: float = 0.0
    kib: float = 0.0
    consumers: int = 0
    spread: float = 0.0
    """How much less than the best served consumer the worst served one got, as a share."""
    free: float = 0.0
    """The others' rate before one is stuck …"""
    beside: float = 0.0
    """… and while it is."""


class Measured(msgspec.Struct):
    """One system: the rounds of one producer and consumer, of four of each, and of a slow pace."""

    name: str
    label: str
    fsync: bool
    one: list[Numbers] = []
    four: list[Numbers] = []
    paced: list[Numbers] = []

    @property
    def whole(self) -> bool:
        return bool(self.one and self.four and self.paced)


class Own(msgspec.Struct):
    """What is measured of Pushlane alone; None where it was left out."""

    idle: Numbers | None = None
    fairness: list[Numbers] = []
    stuck: list[Numbers] = []
    backlog: Numbers | None = None
    sdk: list[Numbers] = []


class Machine(msgspec.Struct):
    shape: Shape
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    busy: float
    """The share of all CPU time that was used, by the benchmark and by others."""
    steal: float
    """The share that the host took for others."""


class Check(msgspec.Struct, frozen=True):
    name: str
    figure: str
    target: str
    reached: bool


class Result(msgspec.Struct):
    commit: str
    date: str
    quick: bool
    machine: Machine
    systems: list[Measured]
    own: Own
    missing: list[str]
    """Peers that were not measured, and why."""
    failed: list[str] = []
    """What failed of Pushlane itself."""
    checks: list[Check] = []

    def system(self, name: str) -> Measured | None:
        return next((each for each in self.systems if each.name == name), None)


def median(rounds: list[Numbers], figure: str) -> float:
    return float(statistics.median(getattr(numbers, figure) for numbers in rounds))


def cpu_per_100k(rounds: list[Numbers], whose: str) -> float:
    """CPU-seconds per 100,000 messages: of the "server" or of the "client"."""
    found = (100_000 * getattr(each, f"{whose}_cpu_s") / each.messages for each in rounds)
    return float(statistics.median(found))
