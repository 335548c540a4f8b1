"""What stands in Redis: keys, runs as text that sorts, values with the time they are good
until, and the Lua scripts that change them.

A script may touch keys of one hash slot only, and every call is about one shard. So the shard is
the hash tag (the part in braces): its keys are together, and the shards of a node are spread, which
a tag for each of our 256 slots would do less well.

A run is "PREFIX FIRST LAST DEADLINE REST". The scripts cut runs by writing other numbers in front
of the same REST; they can't count seqs on, for their numbers are exact to 2^53 only. So REST has
the seq and the number that the run began with, and the reader counts.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote as _quote
from urllib.parse import unquote

import msgspec

from pushlane_leases.interface import KeptSession, LeaseRun
from pushlane_leases.runs import last_of


@lru_cache(maxsize=10_000)
def quote(text: str) -> str:
    """Without spaces and braces; what the server itself makes up stays as it is."""
    return _quote(text, safe="/-_.:")


def epoch_key(shard: str) -> str:
    return f"{{pl/{quote(shard)}}}:epoch"


def runs_key(shard: str) -> str:
    return f"{{pl/{quote(shard)}}}:runs"


def mark_key(shard: str, name: str) -> str:
    return f"{{pl/{quote(shard)}}}:dedup:{_quote(name)}"


def session_key(id: str) -> str:
    """Who can read Redis can't resume what is in it: the id stays a secret of its client's."""
    return "{pl/session/" + hashlib.blake2b(id.encode(), digest_size=20).hexdigest() + "}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int, int, str, int, int, bool, int, int]).decode

_NUMBER = 16
"""Digits: enough for 2^53 and for times."""


def number(value: int) -> str:
    """Digits that sort."""
    return f"{value:0{_NUMBER}d}"


def encode_run(run: LeaseRun) -> bytes:
    head = f"{quote(run.prefix)} {number(run.n)} {number(last_of(run))} {number(run.deadline)} "
    rest: tuple[Any, ...] = (
        run.n, run.seq, run.lane, run.fence, run.session, run.attempts, run.deliveries,
        run.started, run.lease_ms, run.owner,
    )  # fmt: skip
    return head.encode() + _encode(rest)


def decode_run(entry: bytes) -> LeaseRun:
    prefix, first, last, deadline, rest = entry.split(b" ", 4)
    began, seq, lane, fence, session, attempts, deliveries, started, lease_ms, owner = _decode(rest)
    n = int(first)
    return LeaseRun(
        unquote(prefix.decode()),
        n,
        int(last) - n + 1,
        lane,
        seq + n - began,
        fence,
        session,
        attempts,
        deliveries,
        started,
        lease_ms,
        int(deadline),
        owner,
    )


def encode_value(value: bytes, until: int) -> bytes:
    return number(until).encode() + value


def decode_value(entry: bytes | None, now: int) -> bytes | None:
    """None: it is not there, or its time is over."""
    if entry is None or int(entry[:_NUMBER]) <= now:
        return None
    return entry[_NUMBER:]


def encode_session(session: KeptSession, until: int) -> bytes:
    """The scripts look at the time, and at the term behind it."""
    return encode_value(number(session.term).encode() + session.record, until)


def decode_session(entry: bytes | None, now: int) -> KeptSession | None:
    value = decode_value(entry, now)
    return None if value is None else KeptSession(int(value[:_NUMBER]), value[_NUMBER:])


_COMMON = "common"


class Script:
    """A script. Redis knows it by its hash, once it was loaded, until it restarts."""

    __slots__ = ("sha", "text")

    def __init__(self, name: str, common: str = _COMMON) -> None:
        folder = files(__package__) / "lua"
        parts = [(folder / f"{part}.lua").read_text("utf-8") for part in (common, name)]
        self.text = "\n".join(parts)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


CLAIM = Script("claim")
OVERWRITE = Script("overwrite")
GRANT = Script("grant")
RELEASE = Script("release")
REMEMBER = Script("remember")
PUT_SESSION = Script("put_session", "session")
TAKE_SESSION = Script("take_session", "session")
DROP_SESSION = Script("drop_session", "session")

SCRIPTS = {
    script.sha: script
    for script in (
        CLAIM, OVERWRITE, GRANT, RELEASE, REMEMBER, PUT_SESSION, TAKE_SESSION, DROP_SESSION,
    )
}  # fmt: skip
