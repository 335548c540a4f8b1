"""Gaps: what was not recorded is nobody's fault, and what is known in spite of it still counts."""

import pytest

from pushlane_history.checker import check
from pushlane_history.event import (
    Allow,
    Ended,
    Gap,
    Leaving,
    Moved,
    Publish,
    Published,
    QueueSet,
    Settle,
    Start,
    Subscribe,
    Verdict,
)
from tests.history.model import Model
from tests.history.tools import (
    E1,
    History,
    broken,
    grant,
    published,
    server,
    settle,
    stored,
    void,
)

GAP = Gap(0)


@pytest.mark.parametrize("seed", range(60))
def test_a_model_with_gaps_keeps_its_promises(seed: int) -> None:
    report = check(Model(seed, gaps=True).run(200))
    assert report.ok, str(report)


@pytest.mark.parametrize("gap", [GAP, Gap(0, "q", 7)])
def test_what_is_older_is_believed(gap: Gap) -> None:
    older: dict[str, History] = {
        "granted": [grant(1, "r1", E1 + 3, 3)],
        "granted with no uid": [grant(1, "r1", E1 + 3, 3, uid="")],
        "settled": [*settle(1, "older"), Ended(0, "q", "m1", "acked")],
        "started": [Start(0, "older")],
        "voided": [void(1, E1 + 7, 4, 6), grant(1, "r1", E1 + 8, 5)],
        "dead": [Leaving(0, "q", "m1", "max_attempts", "q.dead")],
        "moved": [Moved(0, "q", "m1", "q.dead", "x1", "u1"), Ended(0, "q", "m1", "dead")],
        "repeated": [Publish(0, 1, "q", "u1", dedup="d"), Published(0, 1, "m1", True)],
        "stored": [stored(1)],
    }
    for name, events in older.items():
        assert not broken(server(gap, *events)), name
        assert broken(server(*events)) or name in ("voided", "repeated", "settled"), name


def test_what_ended_has_ended() -> None:
    acked = [*published(1), grant(1, "r1"), *settle(10, "r1"), GAP]
    assert broken(server(acked, grant(1, "r2", E1 + 2))) == {"grant_after_ack"}
    assert broken(server(acked, Ended(0, "q", "m1", "dropped"))) == {"confirmed_settle_lost"}


def test_what_comes_behind_it_is_judged() -> None:
    asked = [Settle(0, 10, "ack", "r1", "S"), Verdict(0, 10, "ok")]
    stale = [GAP, grant(1, "r1", E1 + 4), void(1, E1 + 4, 1, 1), *asked]
    assert broken(server(stale)) == {"stale_settle"}
    twice = [GAP, grant(1, "r1", E1 + 4, 2), grant(1, "r2", E1 + 5, 3)]
    assert broken(server(twice)) == {"two_leases"}
    forgot = [GAP, grant(1, "r1", E1 + 4, 2), void(1, E1 + 4, 2, 1), grant(1, "r2", E1 + 5, 1)]
    assert broken(server(forgot)) == {"attempts"}
    full = [GAP, Subscribe(0, "s", "S", "q", 1)]
    full += [grant(1, "r1", sub="s"), grant(2, "r2", sub="s")]
    assert broken(server(full)) == {"credit"}


def test_only_its_queue_is_excused() -> None:
    gap = Gap(0, "other")
    assert broken(server(gap, grant(1, "r1"))) == {"phantom"}
    assert not broken(server(published(1), gap, grant(1, "r1")))


def test_answers_to_what_was_asked_before_count_for_nothing() -> None:
    before: History = [Publish(0, 1, "q", "u1"), *published(2), grant(2, "r2")]
    before += [Settle(0, 10, "ack", "r2", "S"), GAP]
    assert not broken(server(before, stored(1, 2)))
    assert not broken(server(before, Published(0, 1, "m1"), Verdict(0, 10, "ok"), stored(1, 2)))


def test_limits_and_owners_may_have_been_told_before() -> None:
    late = grant(1, "r1", (7 << 20) + 1, 50)
    assert not broken([GAP, late])
    assert broken([GAP, QueueSet(0, "q"), late]) == {"attempts"}


def test_it_is_counted() -> None:
    configured = [QueueSet(0, "q"), Allow(0, "q", "purged"), GAP, Gap(0, "q")]
    assert check(server(configured, grant(1, "r", E1 + 1))).events["gap"] == 2
