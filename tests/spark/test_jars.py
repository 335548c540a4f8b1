"""Fetching jars, with a Maven that is a script."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pushlane_spark.errors import JarsMissing
from pushlane_spark.jars import packages, spark_jars

MAVEN = """#!/bin/sh
echo run >> {calls}
for option; do
    case $option in -DoutputDirectory=*) out=${{option#*=}};; esac
done
mkdir -p "$out" && sleep 0.2 && touch "$out/b.jar" "$out/a.jar" "$out/notes.txt"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command; it notes its runs in `calls`."""
    monkeypatch.setenv("PUSHLANE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "mvn"
    command.write_text(MAVEN.format(calls=tmp_path / "calls"))
    command.chmod(0o755)
    return command


def test_the_first_fetches_and_the_others_wait(maven: Path, tmp_path: Path) -> None:
    found: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: found.append(spark_jars())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[jar.name for jar in jars] for jars in found] == [["a.jar", "b.jar"]] * 3
    assert (tmp_path / "calls").read_text() == "run\n"


def test_a_folder_beside_us(maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven takes relative paths from where its pom is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUSHLANE_JARS", "here")
    assert all(jar.is_relative_to(tmp_path / "here") for jar in spark_jars())


def test_a_failure_says_what_maven_said(maven: Path, tmp_path: Path) -> None:
    maven.write_text("#!/bin/sh\necho no route; exit 1\n")
    with pytest.raises(JarsMissing, match=r"(?s)Maven can't fetch the jars.*no route"):
        spark_jars()
    assert not list((tmp_path / "jars").glob("spark-*"))


def test_without_maven(maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(JarsMissing, match=r"there is no mvn .*: install Maven"):
        spark_jars()


def test_a_folder_that_can_not_be_used(maven: Path, tmp_path: Path) -> None:
    (tmp_path / "jars").write_text("a file")
    with pytest.raises(JarsMissing, match="name a folder that can be written to in PUSHLANE_JARS"):
        spark_jars()


def test_without_a_word_they_are_in_the_users_cache(
    maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUSHLANE_JARS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert spark_jars()[0].parent.parent == tmp_path / "cache" / "pushlane"


def test_what_a_cluster_needs() -> None:
    connector, sqlite = packages()
    assert connector.startswith("com.datastax.spark:spark-cassandra-connector_2.12:3.5.")
    assert sqlite.startswith("org.xerial:sqlite-jdbc:3.")
