"""Receipts: `P.N` is the proof of one lease, `P.N-M` stands for a run of them.

P is opaque (printable ASCII, made per subscription and shard), N counts its grants from 1. A busy
consumer settles in the order of delivery, so what it acks is nearly always one run: an ack of a
thousand messages is thirty bytes. Runs are bounded one by one (`run`) and over a request
(`settle`), or a tiny frame could name billions.

Both ends use this file: the server renders what it grants and lost, clients compress what they ack.
Input is parsed into BadRequest; what we render ourselves is asserted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .errors import BadRequest
from .limits import DEFAULTS, MAX_INT

ReceiptRun = tuple[str, int, int]
"""Receipts prefix.first … prefix.last: prefix, first and last number."""

_MAX_CHARS = DEFAULTS.id
_MAX_RUN = DEFAULTS.run
# P may hold dots and dashes itself: the last dot ends it.
_RECEIPT = re.compile(r"([!-~]+)\.([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15}))?")


def parse(receipt: str) -> ReceiptRun:
    """Read a receipt or a run into prefix, first and last number."""
    match = _RECEIPT.fullmatch(receipt) if len(receipt) <= _MAX_CHARS else None
    if match is None:
        limit = "id" if len(receipt) > _MAX_CHARS else None
        raise BadRequest(f"{_shown(receipt)} is not a receipt", limit=limit)
    prefix, first, last = match.groups()
    lo = int(first)
    hi = int(last) if last else lo
    if not lo <= hi <= MAX_INT:
        raise BadRequest(f"{_shown(receipt)} is not a receipt: from {lo} to {hi}")
    if hi - lo >= _MAX_RUN:
        raise BadRequest(
            f"{_shown(receipt)} is a run of {hi - lo + 1}: at most {_MAX_RUN}", limit="run"
        )
    return prefix, lo, hi


def parse_all(receipts: Iterable[str], limit: int = DEFAULTS.settle) -> list[ReceiptRun]:
    """Read the receipts of one request: at least one, together at most `limit`."""
    runs = []
    total = 0
    for receipt in receipts:
        run = parse(receipt)
        total += run[2] - run[1] + 1
        if total > limit:
            raise BadRequest(f"receipts covers more than {limit}", limit="settle")
        runs.append(run)
    if not runs:
        raise BadRequest("receipts is empty")
    return runs


def render(prefix: str, lo: int, hi: int) -> str:
    """Write a receipt, or a run when there is more than one number."""
    assert 1 <= lo <= hi <= MAX_INT, (lo, hi)
    assert hi - lo < _MAX_RUN, (lo, hi)
    text = f"{prefix}.{lo}" if lo == hi else f"{prefix}.{lo}-{hi}"
    assert len(text) <= _MAX_CHARS, text
    return text


def render_all(runs: Iterable[ReceiptRun]) -> list[str]:
    """As few strings as the longest run allows."""
    found: list[str] = []
    for prefix, lo, hi in runs:
        while hi - lo >= _MAX_RUN:
            found.append(render(prefix, lo, lo + _MAX_RUN - 1))
            lo += _MAX_RUN
        found.append(render(prefix, lo, hi))
    return found


def count(runs: Iterable[ReceiptRun]) -> int:
    """How many receipts that are."""
    total = 0
    for _, lo, hi in runs:
        total += hi - lo + 1
    return total


def compress(prefix: str, numbers: Iterable[int]) -> list[str]:
    """The fewest receipts that name these numbers, which come in ascending order."""
    runs: list[str] = []
    lo = hi = 0
    for number in numbers:
        assert number > hi, (number, hi)
        if lo and (number != hi + 1 or number - lo >= _MAX_RUN):
            runs.append(render(prefix, lo, hi))
            lo = 0
        lo = lo or number
        hi = number
    if lo:
        runs.append(render(prefix, lo, hi))
    return runs


def _shown(receipt: str) -> str:
    return ascii(receipt if len(receipt) <= _MAX_CHARS else receipt[:32] + "…")
