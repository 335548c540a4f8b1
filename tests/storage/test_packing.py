"""Settlements and seals as bytes: what goes in comes out, and damage is noticed."""

from __future__ import annotations

import pytest

from pushlane_storage.bucket import BucketKey
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.packing import (
    checksum_of,
    pack_seal,
    pack_settlement,
    unpack_seal,
    unpack_settlement,
)
from pushlane_storage.seal import Seal
from pushlane_storage.settlement import Gone, Purge, Settlement, Void

BUCKET = BucketKey(4, 2, 1_000)
SETTLEMENT = Settlement(
    BUCKET, 3, 7, [BUCKET], [(10, 12)], [Gone("expired", 14, 14)], [Void(15, 3 << 20, 1, 1)], [],
    [Purge(4, 20)],
)  # fmt: skip
SEAL = Seal(3, [(4, 2, 17)], [(2, 5)])


def test_a_settlement() -> None:
    body = pack_settlement(SETTLEMENT)
    assert unpack_settlement(BUCKET, 3, 7, checksum_of(body, 3, 7), body) == SETTLEMENT


def test_a_seal() -> None:
    body = pack_seal(SEAL)
    assert unpack_seal(3, checksum_of(body, 3), body) == SEAL


@pytest.mark.parametrize("place", range(len(pack_settlement(SETTLEMENT))))
def test_a_flipped_bit_is_noticed(place: int) -> None:
    body = pack_settlement(SETTLEMENT)
    flipped = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
    with pytest.raises(StoreDamaged, match=r"settlement 3\.7 of "):
        unpack_settlement(BUCKET, 3, 7, checksum_of(body, 3, 7), flipped)


def test_a_row_under_another_key_is_noticed() -> None:
    body = pack_settlement(SETTLEMENT)
    with pytest.raises(StoreDamaged):
        unpack_settlement(BUCKET, 3, 8, checksum_of(body, 3, 7), body)
    seal = pack_seal(SEAL)
    with pytest.raises(StoreDamaged, match="seal 4"):
        unpack_seal(4, checksum_of(seal, 3), seal)


def test_what_is_no_body_at_all() -> None:
    for body in (b"", b"\xc1", b"\x90", None):
        with pytest.raises(StoreDamaged):
            unpack_seal(3, checksum_of(body or b"", 3), body)  # type: ignore[arg-type]
