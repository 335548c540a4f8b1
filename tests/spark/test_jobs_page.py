"""docs/jobs.md and what it points to in deploy/: the examples run, the commands are commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pushlane import testing
from pushlane_spark.jars import packages
from pushlane_spark.jobs_command import jobs
from pushlane_spark.messages import CONTENT, OPTIONS
from pushlane_spark.session import DEFAULTS
from tests.docs.page import read_blocks
from tests.docs.python import Python
from tests.repo import ROOT
from tests.spark.replaying.archives import Kept, write_archive
from tests.spark.target import messages_in

DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "jobs.md").read_text()
BLOCKS = read_blocks(PAGE)
SHELL = [block.text for block in BLOCKS if block.language == "sh"]


def test_examples(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [Kept(n, key=key) for n, key in enumerate(["ann", "bob", "ann"])]
    write_archive(spark, tmp_path / "archive", kept)
    (tmp_path / "incoming").mkdir()
    rows = '{"order":1,"customer":"ann"}\n{"order":2,"customer":"bob"}\n'
    (tmp_path / "incoming" / "1.json").write_text(rows)
    python = Python("docs/jobs.md", shared=True)
    with testing.server() as url:
        monkeypatch.setenv("PUSHLANE_URL", url)
        try:
            for block in BLOCKS:
                if block.language == "python":
                    # Java keeps the folder that it was started in.
                    python.run(block, block.text.replace('"./', f'"{tmp_path}/'))
        finally:
            python.close()
        found = [(message["key"], message["body"]) for message in messages_in(url, "incoming")]
    assert sorted(found) == [
        ("ann", {"order": 1, "customer": "ann"}),
        ("bob", {"order": 2, "customer": "bob"}),
    ]


def test_all_columns_are_explained() -> None:
    table = PAGE.split("## Publishing from Spark")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(named) == sorted([*CONTENT, *OPTIONS])


def test_all_commands_are_listed() -> None:
    table = re.findall(r"^\| `pushlane jobs (\w+)`(?:, `(\w+)`)? \|", PAGE, re.MULTILINE)
    assert {name for row in table for name in row if name} == {
        name for name in jobs if not name.startswith("-")
    }


def commands_in(text: str) -> Iterator[list[str]]:
    """What is behind `pushlane jobs`, or behind its file; as the command would take it."""
    for line in text.replace("\\\n", " ").splitlines():
        found = re.search(r"(?:pushlane jobs|\$\(pushlane jobs path\)) ([a-z].*)", line)
        if found is not None and not line.startswith("#"):
            yield shlex.split(found[1].replace("%i", "retention"))


@pytest.mark.parametrize(
    ("text", "count"),
    [("\n".join(SHELL), 8), ((DEPLOY / "pushlane-jobs.cron").read_text(), 3)],
    ids=["page", "cron"],
)
def test_commands(text: str, count: int) -> None:
    found = list(commands_in(text))
    assert len(found) == count
    for command in found:
        parse(command)


def parse(command: list[str]) -> None:
    jobs.parse_args(command, exit_on_error=False, print_error=False)


def test_a_wrong_command_is_found() -> None:
    with pytest.raises(Exception, match="--nope"):
        parse(["retention", "--store", "x", "--nope"])


def test_a_cluster_gets_what_a_session_has() -> None:
    [command] = [text for text in SHELL if "spark-submit" in text]
    assert f"--packages {','.join(packages())} " in command
    settings = dict(part.split("=") for part in command.split() if part.startswith("spark."))
    own = {name: value for name, value in settings.items() if name.startswith("spark.sql.")}
    assert own.items() <= DEFAULTS.items()
    assert len(own) == 3


# deploy/


def test_the_options_of_the_unit() -> None:
    [units] = [text for text in SHELL if "systemctl" in text]
    [options] = re.findall(r"JOB_ARGS=\"(.*?)\"", units)
    parse(["retention", *shlex.split(options)])
    unit = (DEPLOY / "pushlane-job@.service").read_text()
    server = (DEPLOY / "pushlane.service").read_text()
    for line in ("StateDirectory=pushlane", "WorkingDirectory=/var/lib/pushlane"):
        assert line in unit
        assert line in server
    assert "EnvironmentFile=/etc/pushlane/jobs/%i.env" in unit
    assert "PUSHLANE_JARS=/opt/pushlane/jars" in unit
    assert "PUSHLANE_JARS=/opt/pushlane/jars" in units


def test_the_units(tmp_path: Path) -> None:
    """systemd is on the machines that the units are for, and not on every other."""
    program = shutil.which("systemd-analyze")
    names = ("pushlane-job@.service", "pushlane-job@.timer")
    for name in names:
        text = (DEPLOY / name).read_text().replace("/opt/pushlane/.venv/bin/pushlane", "/bin/true")
        (tmp_path / name.replace("@", "@retention")).write_text(text)
    if program is None:
        assert all(file.read_text().startswith("# ") for file in tmp_path.iterdir())
        return
    done = subprocess.run(
        [program, "verify", *sorted(tmp_path.iterdir())], capture_output=True, text=True, timeout=60
    )
    about_them = [line for line in done.stderr.splitlines() if "pushlane-job@" in line]
    assert (about_them, done.returncode) == ([], 0), done.stderr


class Operator:
    """In the place of Airflow's."""

    made: list[dict[str, Any]]

    def __init__(self, **options: Any) -> None:
        Operator.made.append(options)

    def __rshift__(self, other: Operator) -> Operator:
        return other


class Dag:
    def __init__(self, name: str, **options: Any) -> None:
        assert options["catchup"] is False

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_dags(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they submit is there, with the jars and settings of a session of ours."""
    path = "airflow.providers.apache.spark.operators.spark_submit"
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
    sys.modules["airflow"].DAG = Dag  # type: ignore[attr-defined]
    sys.modules[path].SparkSubmitOperator = Operator  # type: ignore[attr-defined]
    Operator.made = []
    exec((DEPLOY / "airflow_pushlane.py").read_text(), {"__name__": "dags"})
    assert [one["task_id"] for one in Operator.made] == ["retention", "usage", "metrics"]
    for options in Operator.made:
        assert Path(options["application"]).is_file()
        assert options["packages"] == ",".join(packages())
        assert options["conf"].items() <= DEFAULTS.items()
        parse(options["application_args"])
