"""Parts of the stage."""

from __future__ import annotations

from tests.outages.cluster.stage import Progress


def test_progress_goes_on_when_counts_begin_anew() -> None:
    progress = Progress()
    assert [progress.see(value) for value in (90, 100, 130, 10, 30)] == [0, 10, 40, 40, 60]
    progress.begin()
    assert [progress.see(value) for value in (500, 501)] == [0, 1]
