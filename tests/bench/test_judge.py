"""What counts as reached, and what is not judged at all."""

from __future__ import annotations

from bench.gateway.judge import judge
from bench.gateway.result import Check, Measured, Numbers, Own, Result
from tests.bench.results import flow, made, paced


def check(result: Result, start: str) -> Check:
    found = [each for each in judge(result) if each.name.startswith(start)]
    assert len(found) == 1, (start, judge(result))
    return found[0]


def test_three_times_nats() -> None:
    for rate, reached in ((30_000, True), (29_999, False)):
        result = made({"pushlane": rate, "nats": 10_000})
        assert check(result, "1 × 1: times NATS").reached is reached
        assert check(result, "4 × 4: times NATS").reached is reached


def test_ten_times_rabbitmq() -> None:
    for rate, reached in ((50_000, True), (49_999, False)):
        result = made({"pushlane": rate, "rabbitmq": 5_000})
        assert check(result, "1 × 1: times RabbitMQ").reached is reached


def test_ahead_of_all_others_measured_or_recorded() -> None:
    ahead = "1 × 1: messages/s"
    assert check(made({"pushlane": 60_000, "redis": 59_000}), ahead).reached
    behind = check(made({"pushlane": 60_000, "redis": 61_000}), ahead)
    assert not behind.reached
    assert "Redis" in behind.target
    alone = check(made({"pushlane": 30_000}), ahead)
    assert not alone.reached
    assert "recorded" in alone.target


def test_the_median_round_counts() -> None:
    result = made({"pushlane": 60_000, "nats": 10_000})
    ours = result.system("pushlane")
    assert ours is not None
    ours.one = [flow(1.0), flow(60_000.0), flow(25_000.0)]
    assert check(result, "1 × 1: times NATS").figure == "2.5"


def test_without_a_peer_nothing_is_said_of_it() -> None:
    names = [each.name for each in judge(made({"pushlane": 60_000}))]
    assert not [name for name in names if "NATS" in name or "RabbitMQ" in name]


def test_a_peer_that_failed_is_not_compared() -> None:
    result = made({"pushlane": 60_000, "nats": 10_000})
    nats = result.system("nats")
    assert nats is not None
    nats.paced.clear()
    assert not [each for each in judge(result) if "NATS" in each.name]


def test_latency_and_cpu() -> None:
    for p50, p99, cpu, reached in ((2.9, 9.9, 2.4, True), (3.0, 10.0, 2.5, False)):
        result = made({"pushlane": 60_000})
        ours = result.system("pushlane")
        assert ours is not None
        ours.paced = [paced(p50, p99)]
        ours.one = ours.four = [flow(60_000.0, cpu)]
        for start in ("1,000 messages/s: p50", "1,000 messages/s: p99", "1 × 1: server CPU"):
            assert check(result, start).reached is reached, start


def test_own_figures() -> None:
    own = Own(
        idle=Numbers(kib=19.9, consumers=5_000),
        fairness=[Numbers(spread=0.1, consumers=64)],
        stuck=[Numbers(free=100, beside=95)],
        backlog=Numbers(rate=48_000, messages=1_000_000),
        sdk=[Numbers(rate=15_000)],
    )
    checks = judge(made({"pushlane": 60_000}, own))
    assert all(each.reached for each in checks if each.name[:5] not in ("1 × 1", "4 × 4"))
    worse = Own(
        idle=Numbers(kib=20.0, consumers=5_000),
        fairness=[Numbers(spread=0.11, consumers=64)],
        stuck=[Numbers(free=100, beside=94)],
        backlog=Numbers(rate=47_000, messages=1_000_000),
        sdk=[Numbers(rate=14_999)],
    )
    found = judge(made({"pushlane": 60_000}, worse))
    assert len(found) == len(checks)
    assert [each.name for each in found[-5:] if each.reached] == []


def test_the_median_of_the_stuck_rounds_counts() -> None:
    rounds = [Numbers(free=100, beside=beside) for beside in (50, 97, 120)]
    assert check(made({}, Own(stuck=rounds)), "one stuck reader").figure == "3.0%"


def test_what_was_not_measured_is_not_judged() -> None:
    assert judge(made({})) == []
    result = made({})
    result.systems.append(Measured("pushlane", "Pushlane", True, one=[flow(1.0)]))
    assert judge(result) == []
