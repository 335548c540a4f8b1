"""Commits: how a group of buckets gets into the archive as one, whatever happens meanwhile.

    _staging/G/…        the group's files, written and verified; nobody reads them
    _commits/G.json     the decision: these files, of these buckets, are the archive's
    tenant=…/…          the files, renamed to where readers look
    _manifests/…        one for each bucket: it is archived, and where
    (then the commit and the staging folder go)

Before the commit a group does not exist, and what was staged is thrown away. After it, it is only
ever carried through: by whoever made it, or by the next run. So a message is in the archive once,
and a bucket that has a manifest is in it whole.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pushlane_spark.errors import ArchiveUnfit
from pushlane_spark.retaining.files import File, Files
from pushlane_spark.retaining.plan import Found

STAGING, COMMITS, MANIFESTS, TURN = "_staging", "_commits", "_manifests", "_turn"
SUFFIX = ".parquet"
Place = tuple[str, int, int, int, int]
"""Queue id, shard, lane, epoch, start."""


class Archived(msgspec.Struct, frozen=True):
    """A bucket that was verified."""

    queue_id: str
    shard: int
    lane: int
    epoch: int
    start: int
    messages: int
    checksum: int

    @property
    def place(self) -> Place:
        return self.queue_id, self.shard, self.lane, self.epoch, self.start


class Move(msgspec.Struct, frozen=True):
    """A file that is renamed when its group is published."""

    source: str
    target: str
    size: int


class Commit(msgspec.Struct, frozen=True):
    group: str
    at: int
    buckets: list[Archived]
    moves: list[Move]


class Manifest(msgspec.Struct, frozen=True):
    """A bucket in the archive: what was verified, and which files have it (among others)."""

    bucket: Archived
    at: int
    files: list[tuple[str, int]]


class Turn:
    """Whose turn it is. A run that begins takes it, and one that began before stops: else two of
    them could archive the same bucket in different groups."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._own = secrets.token_hex(8).encode()
        files.write(TURN, self._own)

    def check(self) -> None:
        if self._files.read(TURN) != self._own:
            raise ArchiveUnfit("another run of the job began meanwhile, and goes on alone")


def group_name(group: Sequence[Found]) -> str:
    """A name that depends on nothing but the buckets."""
    places = sorted(one.place for one in group)
    return hashlib.sha256(repr(places).encode()).hexdigest()[:20]


def staging(group: str) -> str:
    return f"{STAGING}/{group}"


def staged_files(files: Files, group: str) -> list[File]:
    """What is to be verified, and nothing else is committed."""
    return list(files.below(staging(group), SUFFIX))


def decide(
    files: Files, group: str, at: int, buckets: list[Archived], staged: Sequence[File]
) -> Commit:
    """From here on the group is in the archive."""
    for file in staged:
        files.sync(file.path)
    commit = Commit(group, at, buckets, [_move(group, file) for file in staged])
    files.write(_commit_path(group), msgspec.json.encode(commit))
    return commit


def _move(group: str, file: File) -> Move:
    folder, _, name = file.path.removeprefix(staging(group) + "/").rpartition("/")
    return Move(file.path, f"{folder}/{group}-{name}", file.size)


def carry_out(files: Files, commit: Commit, at: Callable[[str], None]) -> None:
    """Publish a group. Safe to repeat, from wherever it was left."""
    for move in commit.moves:
        _publish(files, move)
        at("published a file")
    where = [(move.target, move.size) for move in commit.moves]
    for bucket in commit.buckets:
        manifest = Manifest(bucket, commit.at, where if bucket.messages else [])
        files.write(manifest_path(bucket.place), msgspec.json.encode(manifest))
    at("wrote the manifests")
    files.delete(staging(commit.group))
    files.delete(_commit_path(commit.group))
    at("cleaned up")


def _publish(files: Files, move: Move) -> None:
    if files.size(move.target) is None:
        files.rename(move.source, move.target)
    if files.size(move.target) != move.size:
        raise ArchiveUnfit(f"{files.full(move.target)} is not the file that was verified")


def pending(files: Files) -> Iterator[Commit]:
    """Groups that were decided and not carried out."""
    for name in files.names(COMMITS):
        if name.endswith(".json"):
            yield msgspec.json.decode(files.read(f"{COMMITS}/{name}"), type=Commit)


def can_be_carried_out(files: Files, commit: Commit) -> bool:
    return all(files.exists(move.source) or files.exists(move.target) for move in commit.moves)


def undo(files: Files, commit: Commit) -> None:
    """Take back a commit whose files are gone: two runs were at work. Nothing was dropped for it,
    for that comes after the commit was carried out."""
    for bucket in commit.buckets:
        files.delete(manifest_path(bucket.place))
    for move in commit.moves:
        files.delete(move.target)
    files.delete(_commit_path(commit.group))


def clean(files: Files) -> None:
    """Throw away what a run that ended early had staged. Nothing may be pending."""
    files.delete(STAGING)
    files.delete(COMMITS)


def read_manifest(files: Files, place: Place) -> Manifest | None:
    """Of a bucket that is in the archive; `ArchiveUnfit` when its files are not."""
    path = manifest_path(place)
    if not files.exists(path):
        return None
    manifest = msgspec.json.decode(files.read(path), type=Manifest)
    for target, size in manifest.files:
        if files.size(target) != size:
            raise ArchiveUnfit(
                f"{files.full(target)} is missing, or was changed: bucket {place} is kept"
            )
    return manifest


def manifest_path(place: Place) -> str:
    queue_id, *numbers = place
    return f"{MANIFESTS}/{queue_id}/{'-'.join(map(str, numbers))}.json"


def _commit_path(group: str) -> str:
    return f"{COMMITS}/{group}.json"
