"""What stands in Redis: runs as text that sorts, and values with the time they are good until.

A run is "PREFIX FIRST LAST DEADLINE REST". The scripts cut runs by writing other numbers in front
of the same REST; they can't count seqs on, for their numbers are exact to 2^53 only. So REST has
the seq and the number that the run began with, and the reader counts.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from pushlane_leases.interface import LeaseRun
from pushlane_leases.redis.keys import quote
from pushlane_leases.runs import last_of

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
