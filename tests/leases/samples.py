"""Short ways to say what is out."""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from pushlane_leases.interface import LeaseRun

NOW = 4_102_444_800_000
"""The year 2100: a back end that cleans up by its own clock finds none of this expired."""
LEASE_MS = 30_000

Receipt = tuple[str, int]


def unique(prefix: str) -> str:
    """A name that no other run has used: a back end may keep what those wrote."""
    return f"{prefix}-{secrets.token_hex(6)}"


def run(n: int, count: int = 1, **fields: Any) -> LeaseRun:
    """Receipts p.n … that hold seqs 1000 + n …"""
    sample = LeaseRun(
        prefix="p",
        n=n,
        count=count,
        lane=4,
        seq=1_000 + n,
        fence=7 << 20,
        session="session-1",
        attempts=0,
        deliveries=1,
        started=False,
        lease_ms=LEASE_MS,
        deadline=NOW + LEASE_MS,
        owner=1,
    )
    return msgspec.structs.replace(sample, **fields)


def by_receipt(runs: Iterable[LeaseRun]) -> dict[Receipt, LeaseRun]:
    """What is known of each receipt, as runs of one: back ends may cut runs as they like."""
    found: dict[Receipt, LeaseRun] = {}
    for one in runs:
        for step in range(one.count):
            receipt = (one.prefix, one.n + step)
            assert receipt not in found, f"{receipt} stands in two runs"
            found[receipt] = msgspec.structs.replace(
                one, n=one.n + step, seq=one.seq + step, count=1
            )
    return found
