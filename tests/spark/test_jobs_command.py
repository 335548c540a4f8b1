"""`pushlane jobs`: what it hands to the jobs, what it prints, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from pushlane import cli, testing
from pushlane_history.event import write
from pushlane_spark.jars import spark_jars
from tests.history.test_command import ACKED, END, STORED
from tests.spark.replaying.archives import Kept, write_archive
from tests.spark.target import messages_in
from tests.spark.traffic import Sent
from tools.services.ports import free_port

BIN = Path(sys.prefix, "bin")


class Ran:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *args: str) -> object:
        """Run the command as the installed script does; its exit status."""
        self._monkeypatch.setattr(sys, "argv", ["pushlane", "jobs", *args])
        with pytest.raises(SystemExit) as end:
            cli.main()
        self.out, self.err = self._capsys.readouterr()
        return end.value.code or 0

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


@pytest.fixture
def run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ran:
    """In this process: its Spark is used. Tables are as wide as paths may be."""
    monkeypatch.setenv("COLUMNS", "400")
    return Ran(monkeypatch, capsys)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.server() as at:
        yield at


# Jobs of other packages: what they are given


RATES = """
currency = "EUR"
[[prices]]
from = 2020-01-01
million_published = 500_000
"""


class Line(msgspec.Struct):
    queue: str
    dropped: int


class Done(msgspec.Struct):
    store: str
    ok: bool
    lines: list[Line]


class StandIn:
    """In the place of a job's module; it keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.given: dict[str, Any] = {}
        self.ok = True
        module = ModuleType(f"pushlane_spark.{name}")
        module.run = self._run  # type: ignore[attr-defined]
        package = ModuleType(module.__name__.rpartition(".")[0])
        package.__path__ = []
        monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def _run(self, spark: SparkSession, store: str, **options: Any) -> Done:
        assert isinstance(spark, SparkSession)
        self.given = options
        return Done(store, self.ok, [Line("orders", 1234)])


def test_retention(run: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = StandIn(monkeypatch, "retaining.job")
    (tmp_path / "token").write_text("secret\n")
    given = ["--archive", "/a", "--queue", "one", "--queue", "two", "--dry-run", "--tenant", "t"]
    server = ["--url", "ws://h", "--token-file", str(tmp_path / "token")]
    assert run("retention", "--store", "sqlite:d", *given, *server) == 0
    assert callable(job.given.pop("at")), "the steps are shown"
    assert job.given == {
        "archive": "/a", "queues": ["one", "two"], "tenant": "t", "dry_run": True,
        "url": "ws://h", "token": "secret",
    }  # fmt: skip
    assert "sqlite:d" in run.out
    assert "1,234" in run.out
    monkeypatch.delenv("PUSHLANE_TOKEN", raising=False)
    assert run("retention", "--store", "sqlite:d", "--json") == 0
    assert run.json == {
        "store": "sqlite:d",
        "ok": True,
        "lines": [{"queue": "orders", "dropped": 1234}],
    }
    assert callable(job.given.pop("at"))
    assert job.given == {
        "archive": None, "queues": None, "tenant": None, "dry_run": False,
        "url": None, "token": None,
    }  # fmt: skip
    job.ok = False
    assert run("retention", "--store", "sqlite:d") == 1


def test_usage(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn(monkeypatch, "billing.report")
    options = ["--store", "sqlite:d", "--rate-card", "r.toml", "--out", "o"]
    assert run("usage", *options, "--since", "2026-11-01", "--until", "2026-11-02T00:30+01:00") == 0
    first = datetime(2026, 11, 1, tzinfo=UTC)
    assert job.given == {
        "rate_card": Path("r.toml"), "out": "o", "tenant": None,
        "since": first, "until": first + timedelta(hours=23, minutes=30),
        "url": None, "token": None,
    }  # fmt: skip
    assert run("usage", *options) == 0
    assert job.given["until"] - job.given["since"] == timedelta(days=1)
    assert run("usage", *options, "--since", "today", "--until", "yesterday") == 2
    assert "nothing lies between today and yesterday" in run.err
    assert run("usage", "--store", "sqlite:d") == 2


def test_metrics(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    job = StandIn(monkeypatch, "measuring.report")
    assert run("metrics", "--store", "sqlite:d", "--out", "o", "--archive", "/a") == 0
    period = job.given.pop("until") - job.given.pop("since")
    assert abs(period - timedelta(days=7)) < timedelta(minutes=1)
    assert job.given == {"out": "o", "tenant": None, "archive": "/a"}
    assert run("metrics", "--store", "sqlite:d", "--out", "o", "--since", "soon") == 2
    assert "'soon' is not a time: give a date" in run.err


def test_jobs_over_what_servers_stored(
    run: Ran, traffic: tuple[str, dict[str, Sent]], tmp_path: Path
) -> None:
    store, sent = traffic
    (tmp_path / "rates.toml").write_text(RATES)
    period = ["--since", "1h", "--until", "now", "--json"]
    out = ["--out", str(tmp_path / "out")]
    assert (
        run("usage", "--store", store, "--rate-card", f"{tmp_path}/rates.toml", *out, *period) == 0
    )
    [bill] = run.json["tenants"]
    dead = sum(message.state == "dead" for message in sent.values())
    assert bill["used"]["published"] == len(sent) + dead + 1  # and what is in the other queue
    assert run.json["written_back"] > 0
    assert run("metrics", "--store", store, *out, *period) == 0
    acked = sum(message.state == "acked" for message in sent.values())
    assert (run.json["totals"]["acked"], run.json["totals"]["dead.rejected"]) == (acked, dead)
    assert run.json["plots"] > 0
    assert run("retention", "--store", store, "--dry-run", "--json") == 0
    assert run.json["dry_run"]


# Audit and replay: the real ones


@pytest.fixture
def histories(tmp_path: Path) -> tuple[str, str]:
    names = str(tmp_path / "clean.jsonl"), str(tmp_path / "broken.jsonl")
    for name, history in zip(names, ([*STORED, *ACKED, *END], [*STORED, *END]), strict=True):
        with Path(name).open("wb") as file:
            write(file, history)
    return names


def test_audit(run: Ran, histories: tuple[str, str]) -> None:
    clean, broken = histories
    assert run("audit", clean) == 0
    assert "clean.jsonl" in run.out
    assert run("audit", broken, "--json") == 1
    assert run.json["broken"] == {"lost": 1}
    assert [one["event"] for one in run.json["violations"][0]["evidence"]] == [
        "publish",
        "published",
    ]
    assert run("audit") == 2
    assert "what should be audited?" in run.err
    assert run("audit", f"{clean}.nope") == 2
    assert "there is no history in" in run.err


def test_replay(run: Ran, spark: SparkSession, url: str, tmp_path: Path) -> None:
    kept = [Kept(n, key=f"k{n % 2}", headers={"a": "b=c"}) for n in range(10)]
    archive = write_archive(spark, tmp_path / "archive", [*kept, Kept(11, state="dead")])
    options = ["--archive", archive, "--queue", "orders", "--to", "again", "--url", url]
    assert run("replay", *options, "--dry-run") == 0
    assert "acked 10, dead 1" in run.out
    chosen = ["--key", "k1", "--header", "a=b=c", "--state", "acked", "--since", "2026-03-01"]
    mark = ["--bookmark", str(tmp_path / "mark"), "--rate", "1000"]
    assert run("replay", *options, *chosen, *mark, "--json") == 0
    assert (run.json["messages"], run.json["stored"]) == (5, 5)
    assert [message["body"] for message in messages_in(url, "again")] == [1, 3, 5, 7, 9]
    assert run("replay", *options, "--json") == 0
    assert (run.json["stored"], run.json["duplicates"]) == (6, 5)


def test_a_replay_that_can_not_be(
    run: Ran, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(spark, tmp_path, [Kept(1)])
    options = ["--queue", "orders", "--to", "again"]
    assert run("replay", *options) == 2
    assert "Give --archive, or --store" in run.err
    assert run("replay", *options, "--archive", archive, "--header", "x") == 2
    assert "--header is 'x': give NAME=VALUE" in run.err
    assert run("replay", *options, "--archive", archive, "--state", "open") == 2
    assert "no state to replay: open" in run.err
    assert run("replay", *options, "--archive", str(tmp_path / "nowhere")) == 2
    assert "there is no archive in" in run.err
    assert run("replay", *options, "--archive", archive, "--token-file", "/nope") == 2
    monkeypatch.setattr("pushlane_spark.sending.LOOK_MS", 300)
    nobody = f"ws://127.0.0.1:{free_port()}"
    assert run("replay", *options, "--archive", archive, "--url", nobody) == 1
    assert "connection_lost" in run.err
    assert "run it again" in run.err


# Spark


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--memory", "lots"], "--memory is 'lots'"),
        (["--conf", "x=1"], "--conf is 'x=1': give spark.NAME=VALUE"),
        (["--conf", "spark.x"], "--conf is 'spark.x'"),
    ],
)
def test_options_that_spark_does_not_have(run: Ran, options: list[str], reason: str) -> None:
    assert run("audit", "x", *options) == 2
    assert reason in run.err


def test_spark_submit(run: Ran, histories: tuple[str, str], tmp_path: Path) -> None:
    """On a Spark that is not ours, with the file that the command names."""
    assert run("path") == 0
    path = run.out.strip()
    assert run("jars") == 0
    jars = run.out.strip()
    assert jars == ",".join(map(str, spark_jars()))
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    given = [part for item in settings.items() for part in ("--conf", "=".join(item))]
    spark = ["--master", "local[2]", "--driver-memory", "512m", *given, "--jars", jars]
    done = subprocess.run(
        [BIN / "spark-submit", *spark, path, "audit", histories[1], "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_environment(),
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert msgspec.json.decode(done.stdout)["broken"] == {"lost": 1}


def test_without_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "pushlane", "jobs", "audit", "x"],
        capture_output=True,
        text=True,
        env={**_environment(), "JAVA_HOME": str(tmp_path)},
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"pushlane jobs: JAVA_HOME is {tmp_path}, where there is no Java")


def _environment() -> dict[str, str]:
    """Without what the Spark of this process has put there."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return {**own, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
