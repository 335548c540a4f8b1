"""Each rule: a clean history that passes, and the same one minimally broken, which only that rule
catches. Finer points have tests of their own in test_checker_*.py."""

import pytest

from pushlane_history.checker import Checker, check
from pushlane_history.event import (
    Allow,
    Bound,
    Crash,
    Deleted,
    Drained,
    Ended,
    Event,
    Fault,
    Idle,
    Leaving,
    Moved,
    Open,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Quiesce,
    Settle,
    Stored,
    Subscribe,
    Verdict,
)
from pushlane_history.rule import KEPT_VIOLATIONS, RULES
from tests.history.tools import (
    E1,
    E2,
    History,
    broken,
    grant,
    nack,
    published,
    server,
    settle,
    stored,
    void,
)

CRASH: History = [Crash(0, "n1"), Open(0, "n2", 2)]
REJECT: History = [
    Settle(0, 10, "reject", "r1"),
    Leaving(0, "q", "m1", "rejected", "q.dead"),
    Verdict(0, 10, "ok"),
]
MOVED = Moved(0, "q", "m1", "q.dead", "x1", "u1")
DEAD: History = [*published(1), grant(1, "r1"), *REJECT]
DEAD_DUMP = Stored(0, "q.dead", ["x1"], ["u1"])

REFUSED: History = [Publish(9, 2, "q", "u2"), PublishFailed(9, 2, "not_found")]
IDLE = Idle(9, "s", "q", 5)

CASES: dict[str, tuple[History, History]] = {
    "lost": (
        server(published(1), published(2), grant(1, "r1"), settle(10, "r1"), stored(2)),
        server(published(1), published(2), grant(1, "r1"), stored(2)),
    ),
    "ack_before_durable": (
        server(published(1), CRASH, stored(1)),
        server(published(1), CRASH, stored()),
    ),
    "ended_twice": (
        server(Allow(0, "q", "purged"), published(1), Ended(0, "q", "m1", "purged")),
        server(
            Allow(0, "q", "purged"),
            published(1),
            Ended(0, "q", "m1", "purged"),
            Ended(0, "q", "m1", "purged"),
        ),
    ),
    "phantom": (
        server(published(1), grant(1, "r1")),
        server(published(1), grant(1, "r1", uid="u2")),
    ),
    "unacked_unknown": (
        server(Publish(0, 1, "q", "u1"), PublishFailed(0, 1, "unavailable"), stored(1)),
        server(
            Publish(0, 1, "q", "u1"),
            PublishFailed(0, 1, "unavailable"),
            Stored(0, "q", ["m1", "m2"], ["u1", "u1"]),
        ),
    ),
    "dedup": (
        server(
            published(1, dedup="d"),
            Publish(0, 2, "q", "u2", dedup="d"),
            Published(0, 2, "m1", True),
        ),
        server(
            published(1, dedup="d"),
            Publish(0, 2, "q", "u2", dedup="d"),
            Published(0, 2, "m2"),
        ),
    ),
    "two_leases": (
        server(published(1), grant(1, "r1"), void(1), grant(1, "r2", E1 + 2, 2)),
        server(published(1), grant(1, "r1"), grant(1, "r2", E1 + 2, 2)),
    ),
    "stale_settle": (
        server(published(1), grant(1, "r1"), void(1), settle(10, "r1", result="lease_lost")),
        server(published(1), grant(1, "r1"), void(1), settle(10, "r1")),
    ),
    "grant_after_ack": (
        server(published(1), grant(1, "r1"), settle(10, "r1"), CRASH),
        server(published(1), grant(1, "r1"), settle(10, "r1"), CRASH, grant(1, "r2", E2 + 1)),
    ),
    "grant_after_end": (
        server(published(1, expires=True), grant(1, "r1"), void(1), Ended(0, "q", "m1", "expired")),
        server(
            published(1, expires=True),
            grant(1, "r1"),
            void(1),
            Ended(0, "q", "m1", "expired"),
            grant(1, "r2", E1 + 2, 2),
        ),
    ),
    "confirmed_settle_lost": (
        server(published(1), grant(1, "r1"), settle(10, "r1"), stored()),
        server(published(1), grant(1, "r1"), settle(10, "r1"), stored(1)),
    ),
    "fence": (
        server(published(1), grant(1, "r1"), void(1), CRASH, grant(1, "r2", E2 + 1, 2)),
        server(published(1), grant(1, "r1"), void(1), CRASH, grant(1, "r2", E1 + 1, 2)),
    ),
    "key_order": (
        server(
            published(1, key="k"),
            published(2, key="k"),
            grant(1, "r1"),
            settle(10, "r1"),
            grant(2, "r2"),
        ),
        server(published(1, key="k"), published(2, key="k"), grant(1, "r1"), grant(2, "r2")),
    ),
    "attempts": (
        server(published(1), grant(1, "r1"), nack(1, 10, "r1"), grant(1, "r2", E1 + 2, 2)),
        server(published(1), grant(1, "r1"), nack(1, 10, "r1"), grant(1, "r2", E1 + 2, 1)),
    ),
    "dead_cause": (
        server(published(1), grant(1, "r1"), REJECT),
        server(published(1), grant(1, "r1"), void(1), REJECT[1]),
    ),
    "transfer": (
        server(DEAD, MOVED, Ended(0, "q", "m1", "dead"), stored(), DEAD_DUMP),
        server(DEAD, Ended(0, "q", "m1", "dead")),
    ),
    "in_flight": (
        server(
            Allow(0, "q", "purged"),
            published(1),
            grant(1, "r1"),
            void(1),
            Ended(0, "q", "m1", "purged"),
        ),
        server(
            Allow(0, "q", "purged"), published(1), grant(1, "r1"), Ended(0, "q", "m1", "purged")
        ),
    ),
    "credit": (
        server(
            Subscribe(0, "s", "S", "q", 1),
            published(1),
            published(2),
            grant(1, "r1", sub="s"),
            settle(10, "r1"),
            grant(2, "r2", sub="s"),
        ),
        server(
            Subscribe(0, "s", "S", "q", 1),
            published(1),
            published(2),
            grant(1, "r1", sub="s"),
            grant(2, "r2", sub="s"),
        ),
    ),
    "deleted": (
        server(published(1), Deleted(9, "q"), REFUSED),
        server(published(1), Deleted(9, "q"), published(2)),
    ),
    "stalled": (
        server(Subscribe(0, "s", "S", "q", 1), published(1), grant(1, "r1", sub="s"), IDLE),
        server(Subscribe(0, "s", "S", "q", 1), published(1), IDLE),
    ),
    "bounds": (server(Bound(0, "window", 10, 10)), server(Bound(0, "window", 11, 10))),
    "drain": (
        server(Quiesce(0, ["q"], 100), Drained(100)),
        server(Quiesce(0, ["q"], 100), Drained(101)),
    ),
    "malformed": (
        server(published(1), grant(1, "r1"), settle(10, "r1")),
        server(published(1), grant(1, "r1"), Verdict(0, 10, "ok")),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_clean_history_passes(rule: str) -> None:
    report = check(CASES[rule][0])
    assert report.ok, str(report)


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_one_is_caught_by_exactly_that_rule(rule: str) -> None:
    assert broken(CASES[rule][1]) == {rule}


def test_every_rule_has_a_case_and_one_line() -> None:
    assert set(CASES) == set(RULES)
    assert not [statement for statement in RULES.values() if "\n" in statement]


def test_the_report_counts_events_faults_and_rare_cases() -> None:
    report = check(
        server(Fault(0, "crash"), Fault(0, "crash"), published(1), grant(1, "r1"), settle(2, "rx"))
    )
    assert report.events["grant"] == 1
    assert report.events["fault"] == 2
    assert "void" not in report.events
    assert report.faults == {"crash": 2}
    report = check(server(published(1), grant(1, "r1"), settle(2, "r1", "ack", "unknown")))
    assert report.notes == {"settle_unknown": 1}


def test_a_violation_shows_its_evidence() -> None:
    history = CASES["two_leases"][1]
    (violation,) = check(history).violations
    assert list(violation.evidence) == history[1:]
    text = str(check(history))
    assert text.startswith("5 events: two_leases 1\ntwo_leases: granted again while fence")
    assert "receipt='r2'" in text


def test_a_lost_message_names_the_crash_that_may_have_taken_it() -> None:
    crash = Crash(7, "n2")
    history = server(CRASH, published(1), crash, Crash(8, "n3"), stored())
    (violation,) = check(history).violations
    assert violation.rule == "ack_before_durable"
    assert violation.evidence[-1] == crash
    history = server(CRASH, published(1), grant(1, "r1", E2 + 1), crash, stored())
    (violation,) = check(history).violations
    assert violation.rule == "lost"
    assert violation.evidence[-1] == crash


def test_an_orderly_stop_is_no_suspect() -> None:
    assert broken(server(published(1), Crash(0, "n1", clean=True), stored())) == {"lost"}


def test_violations_are_counted_but_not_all_kept() -> None:
    report = check([Bound(0, "window", 2, 1)] * (KEPT_VIOLATIONS + 50))
    assert len(report.violations) == KEPT_VIOLATIONS
    assert report.broken == {"bounds": KEPT_VIOLATIONS + 50}


def test_a_simulator_can_stop_at_the_first_violation() -> None:
    checker = Checker()
    checker.feed(Bound(0, "window", 1, 1))
    assert not checker.violated
    checker.feed(Bound(0, "window", 2, 1))
    assert checker.violated


def test_what_ended_long_ago_is_still_judged_without_its_evidence() -> None:
    history: list[Event] = server()
    for n in range(1, 2_001):
        history += [*published(n), grant(n, f"r{n}"), *settle(5_000 + n, f"r{n}")]
    (violation,) = check([*history, grant(1, "r", E1 + 2)]).violations
    assert violation.rule == "grant_after_ack"
    assert violation.evidence == (grant(1, "r", E1 + 2),)
    (violation,) = check([*history, grant(2_000, "r", E1 + 2)]).violations
    assert violation.evidence[:2] == tuple(published(2_000))


def test_a_long_story_keeps_its_beginning_and_its_end() -> None:
    history = server(QueueSet(0, "q", 1_000, 1_000), published(1))
    for n in range(1, 200):
        history += [grant(1, f"r{n}", E1 + n, n), void(1, E1 + n, n)]
    (violation,) = check([*history, stored()]).violations
    assert violation.evidence[:2] == tuple(published(1))
    assert violation.evidence[-1] == history[-1]
    assert len(violation.evidence) < 100
