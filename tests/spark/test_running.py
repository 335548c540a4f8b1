"""How a job's command ends, whatever happens to the job."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pushlane_spark import running
from pushlane_spark.errors import PublishFailed, SparkMissing, StoreUnreadable
from pushlane_spark.running import (
    LOCAL,
    SparkOptions,
    finish,
    pairs,
    progress_bar,
    run_job,
    steps_shown,
)


def ended(fault: Any, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    def job(session: SparkSession) -> None:
        if isinstance(fault, str):
            session.sql(fault).collect()
        raise fault

    with pytest.raises(SystemExit) as end:
        run_job("test", LOCAL, job)
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (StoreUnreadable("no such store"), 2, "no such store"),
        (ValueError("rate is 0"), 2, "rate is 0"),
        (PublishFailed("queue_full", "it is"), 1, "queue_full: it is; run it again"),
        (KeyboardInterrupt(), 130, "stopped"),
        ("select raise_error('broken')", 1, "Spark failed: "),
        ("select nonsense", 1, "Spark failed: [UNRESOLVED_COLUMN"),
    ],
)
def test_faults(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], fault: Any, code: int, said: str
) -> None:
    found, err = ended(fault, capsys)
    assert found == code
    assert err.startswith(f"pushlane jobs: {said}")
    assert len(err.splitlines()) <= running.MOST_LINES + 1


def test_a_bug_of_ours_is_shown(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError):
        run_job("test", LOCAL, lambda _: 1 / 0)


def test_without_pyspark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: str) -> None:
        raise SparkMissing("pyspark is not installed: pip install 'pushlane-server[spark]'")

    monkeypatch.setattr(running, "load", missing)
    with pytest.raises(SystemExit) as end:
        run_job("test", LOCAL, lambda _: None)
    assert end.value.code == 2
    assert "pip install 'pushlane-server[spark]'" in capsys.readouterr().err


def test_settings() -> None:
    found = SparkOptions(memory="4g", conf=["spark.a=b=c", "spark.driver.memory=1g"]).settings()
    assert found["spark.a"] == "b=c"
    assert found["spark.driver.memory"] == "1g"
    assert running.LOGGING.is_file()
    assert str(running.LOGGING) in found["spark.driver.extraJavaOptions"]


def test_pairs() -> None:
    assert pairs(["a=b", "c=d=e"], "--x") == {"a": "b", "c": "d=e"}


def test_a_report_that_is_not_ok_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    from pushlane_spark.auditing.report import AuditReport

    finish(AuditReport(True, {}, [], []), json=True)
    with pytest.raises(SystemExit) as end:
        finish(AuditReport(False, {"lost": 1}, [], []), json=False)
    assert end.value.code == 1
    assert "lost 1" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_bar("replaying") as tell:
        tell(3, 10)
    assert "replaying" in terminal.getvalue()
    assert "3/10" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with progress_bar("replaying") as tell:
        tell(3, 10)
    assert log.getvalue() == ""


def test_steps_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for file, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", file)
        with steps_shown() as at:
            for step in ("looked", "cleaned up", "dropped"):
                at(step)
        assert ("dropped, 1 groups archived" in file.getvalue()) == shown
