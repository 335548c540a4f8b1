"""Reports: rows of nodes and minutes become points, histograms percentiles."""

from pushlane_dispatcher.usage.report import Latency, Report, latency_of
from pushlane_storage.usage import Usage, UsageKey, bin_of, bounds_of


def row(queue: str, at: int, node: str, /, **counters: int) -> Usage:
    named = {name.replace("__", "."): value for name, value in counters.items()}
    return Usage(UsageKey("t", queue, at, node), named)


def test_nodes_and_minutes_add_up() -> None:
    report = Report(60)
    report.add(
        [
            row("q", 0, "id/0", minute=7),
            row("q", 61, "id/0", published=3, max__backlog=5),
            row("q", 119, "id/1", published=4, max__backlog=2, dead__rejected=1),
            row("q", 120, "n.1", delivered=1),
            row("", 61, "n.1", connections=2),
        ]
    )
    assert len(report) == 3
    tenant, first, second = report.points()
    assert (tenant.queue, tenant.at, tenant.counters) == ("", 3_600_000, {"connections": 2})
    assert (first.queue, first.at) == ("q", 3_600_000)
    assert first.counters == {"published": 7, "max.backlog": 5, "dead.rejected": 1}
    assert (second.at, second.counters, second.latencies) == (7_200_000, {"delivered": 1}, {})


def test_histograms_become_percentiles() -> None:
    report = Report(1)
    report.add([row("q", 5, "a", publish_ms__3=98, acked=1), row("q", 5, "b", publish_ms__40=2)])
    [point] = report.points()
    assert point.counters == {"acked": 1}
    top = bounds_of(40)[1] - 1
    assert point.latencies == {"publish_ms": Latency(100, 3, 3, top)}


def test_percentiles_of_a_thousand() -> None:
    bins: dict[int, int] = {}
    for ms in range(1, 1_001):
        bins[bin_of(ms)] = bins.get(bin_of(ms), 0) + 1
    found = latency_of(bins)
    assert found.count == 1_000
    for share, value in ((500, found.p50), (900, found.p90), (990, found.p99)):
        assert share <= value <= share * 1.2 + 1
    assert latency_of({7: 1}) == Latency(1, 7, 7, 7)
