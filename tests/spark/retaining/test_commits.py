"""Commits: what was decided is carried out, from wherever it was left."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.errors import ArchiveUnfit
from pushlane_spark.retaining import commits
from pushlane_spark.retaining.commits import (
    Archived,
    Turn,
    can_be_carried_out,
    carry_out,
    clean,
    decide,
    pending,
    staged_files,
    undo,
)
from pushlane_spark.retaining.files import Files

BUCKET = Archived("q1", 0, 4, 1, 10, messages=2, checksum=7)
EMPTY = Archived("q1", 0, 4, 1, 20, messages=0, checksum=0)


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, str(tmp_path / "an archive"))


def stage(files: Files) -> None:
    for day in ("1", "2"):
        files.write(
            f"{commits.staging('g')}/tenant=t/queue=a%3Ab/day={day}/part-0.parquet", b"x" * 9
        )
    files.write(f"{commits.staging('g')}/_SUCCESS", b"")


def seen(files: Files) -> list[str]:
    return sorted(
        file.path for file in files.below("", ".parquet") if not file.path.startswith("_")
    )


PUBLISHED = [f"tenant=t/queue=a%3Ab/day={day}/g-part-0.parquet" for day in ("1", "2")]


class Stop(Exception):
    pass


@pytest.mark.parametrize("number", range(5))
def test_carried_out_from_wherever_it_was_left(files: Files, number: int) -> None:
    steps = iter(range(5))

    def at(_: str) -> None:
        if next(steps) == number:
            raise Stop

    stage(files)
    commit = decide(files, "g", 1, [BUCKET, EMPTY], staged_files(files, "g"))
    assert seen(files) == []
    try:
        carry_out(files, commit, at)
    except Stop:
        assert number < 4
    for found in pending(files):
        assert found == commit
        carry_out(files, found, lambda _: None)
    assert seen(files) == PUBLISHED
    clean(files)
    assert files.names("") == [commits.MANIFESTS, "tenant=t"]
    manifest = commits.read_manifest(files, BUCKET.place)
    assert manifest is not None
    assert (manifest.bucket, manifest.files) == (BUCKET, [(path, 9) for path in PUBLISHED])
    empty = commits.read_manifest(files, EMPTY.place)
    assert empty is not None
    assert empty.files == []


def test_what_was_only_staged_is_thrown_away(files: Files) -> None:
    stage(files)
    assert list(pending(files)) == []
    clean(files)
    assert files.names("") == []
    assert commits.read_manifest(files, BUCKET.place) is None


def test_files_that_are_gone_or_changed_are_noticed(files: Files) -> None:
    stage(files)
    commit = decide(files, "g", 1, [BUCKET], staged_files(files, "g"))
    files.write(PUBLISHED[0], b"another one")
    with pytest.raises(ArchiveUnfit, match="not the file that was verified"):
        carry_out(files, commit, lambda _: None)
    files.delete(PUBLISHED[0])
    carry_out(files, commit, lambda _: None)
    files.delete(PUBLISHED[1])
    with pytest.raises(ArchiveUnfit, match="is missing, or was changed"):
        commits.read_manifest(files, BUCKET.place)


def test_the_run_that_began_last_goes_on_alone(files: Files) -> None:
    first = Turn(files)
    first.check()
    second = Turn(files)
    second.check()
    with pytest.raises(ArchiveUnfit, match="another run of the job began"):
        first.check()


def test_places_that_can_not_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (f"{tmp_path}/file/archive", "nowhere://host/path"):
        with pytest.raises(ArchiveUnfit, match="can't be written"):
            Files(spark, root)


def test_a_commit_whose_files_another_run_threw_away_is_taken_back(files: Files) -> None:
    stage(files)
    commit = decide(files, "g", 1, [BUCKET], staged_files(files, "g"))
    assert can_be_carried_out(files, commit)
    files.rename(commit.moves[0].source, commit.moves[0].target)
    assert can_be_carried_out(files, commit)
    clean_staging = commits.staging("g")
    files.delete(clean_staging)
    assert not can_be_carried_out(files, commit)
    with pytest.raises(ArchiveUnfit, match="could not be renamed"):
        carry_out(files, commit, lambda _: None)
    undo(files, commit)
    assert (seen(files), list(pending(files))) == ([], [])
    assert commits.read_manifest(files, BUCKET.place) is None
