"""Where a replay stands, in a file: so that one which was stopped goes on.

It is written after every batch that was stored. What was under way when the replay was stopped is
sent again; the queue knows it by its dedup ids, within the window.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from pushlane_spark.errors import BookmarkUnfit
from pushlane_spark.replaying.choosing import PLACE


class Bookmark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replay: str
    """What is replayed, and where to: its hash."""
    at: int
    queue_id: str
    shard: int
    lane: int
    seq: int
    done: int
    """Messages up to here."""

    def behind(self) -> Column:
        """Whether a message comes later."""
        here = F.struct(*(F.lit(getattr(self, name)).alias(name) for name in PLACE))
        return F.struct(*PLACE) > here


def name_of(*what: Any) -> str:
    return sha256(msgspec.json.encode(what)).hexdigest()[:16]


def bookmark_at(replay: str, row: Row, done: int) -> Bookmark:
    return Bookmark(replay=replay, done=done, **{name: row[name] for name in PLACE})


def load(path: Path, replay: str) -> Bookmark | None:
    """The bookmark of this replay, if it has begun; `BookmarkUnfit`."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Bookmark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BookmarkUnfit(f"{path} can't be read as a bookmark: {error}") from error
    if found.replay != replay:
        raise BookmarkUnfit(
            f"{path} is the bookmark of another replay (other queues or another choice):"
            " give another file"
        )
    return found


def save(path: Path, bookmark: Bookmark) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(msgspec.json.encode(bookmark))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise BookmarkUnfit(f"{path} can't be written: {error}") from error
