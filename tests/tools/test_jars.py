"""Fetching Cassandra, with a Maven that is a script."""

import os
import threading
from pathlib import Path

import pytest

from tools.services.cassandra_files import cassandra_jars
from tools.services.process import CannotStart

MAVEN = """#!/bin/sh
echo run >> {calls}
for option; do
    case $option in -DoutputDirectory=*) out=${{option#*=}};; esac
done
mkdir -p "$out" && sleep 0.2 && touch "$out/cassandra-all-5.0.9.jar"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it notes its runs."""
    monkeypatch.setenv("PUSHLANE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "mvn"
    command.write_text(MAVEN.format(calls=tmp_path / "calls"))
    command.chmod(0o755)
    return tmp_path / "calls"


def test_the_first_fetches_and_the_others_wait(maven: Path, tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(cassandra_jars())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "jars" / "cassandra-5.0.9"] * 3
    assert (found[0] / "cassandra-all-5.0.9.jar").exists()
    assert maven.read_text() == "run\n"


def test_a_failure_says_what_maven_said(maven: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\necho no route; exit 1\n")
    with pytest.raises(CannotStart, match=r"(?s)Maven can't fetch Cassandra.*no route"):
        cassandra_jars()
    assert not (tmp_path / "jars" / "cassandra-5.0.9").exists()


def test_without_maven(maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotStart, match="mvn is missing"):
        cassandra_jars()
