"""Settlements, seals and notes as bytes, each with a checksum.

There is no going on without one of these: a lost settlement would bring back what was acked. So a
damaged one is an error, not a gap.
"""

import zlib
from typing import Any

import msgspec

from pushlane_storage.bucket import BucketKey
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.note import KeptNumbers, Note
from pushlane_storage.ranges import Range
from pushlane_storage.seal import Seal
from pushlane_storage.settlement import Checkpoint, Gone, Leaving, Purge, Settlement, Void

_encode = msgspec.msgpack.Encoder().encode


class _SettlementBody(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a settlement says besides its key."""

    parts: list[BucketKey]
    acked: list[Range]
    gone: list[Gone]
    voids: list[Void]
    leaving: list[Leaving]
    purges: list[Purge]
    checkpoint: Checkpoint | None


class _SealBody(msgspec.Struct, array_like=True, frozen=True, gc=False):
    counters: list[tuple[int, int, int]]
    flushes: list[tuple[int, int]]


_settlement = msgspec.msgpack.Decoder(_SettlementBody)


class _NoteBody(msgspec.Struct, array_like=True, frozen=True, gc=False):
    tenant: str
    queue: str
    due: int | None
    kept: list[KeptNumbers]
    whole: bool


_note = msgspec.msgpack.Decoder(_NoteBody)
_seal = msgspec.msgpack.Decoder(_SealBody)


def pack_settlement(row: Settlement) -> bytes:
    return _encode(
        (row.parts, row.acked, row.gone, row.voids, row.leaving, row.purges, row.checkpoint)
    )


def unpack_settlement(
    bucket: BucketKey, owner: int, n: int, checksum: int, body: bytes
) -> Settlement:
    what = f"settlement {owner}.{n} of {bucket}"
    found = _unpack(_settlement, what, checksum, body, owner, n)
    return Settlement(
        bucket,
        owner,
        n,
        found.parts,
        found.acked,
        found.gone,
        found.voids,
        found.leaving,
        found.purges,
        found.checkpoint,
    )


def pack_seal(seal: Seal) -> bytes:
    return _encode((seal.counters, seal.flushes))


def unpack_seal(owner: int, checksum: int, body: bytes) -> Seal:
    found = _unpack(_seal, f"seal {owner}", checksum, body, owner)
    return Seal(owner, found.counters, found.flushes)


def pack_note(note: Note) -> bytes:
    return _encode((note.tenant, note.queue, note.due, note.kept, note.whole))


def unpack_note(owner: int, n: int, checksum: int, body: bytes) -> Note:
    found = _unpack(_note, f"note {owner}.{n}", checksum, body, owner, n)
    return Note(owner, n, found.tenant, found.queue, found.due, found.kept, found.whole)


def checksum_of(body: bytes, *key: int) -> int:
    return zlib.crc32(body, zlib.crc32(repr(key).encode()))


def _unpack(decoder: Any, what: str, checksum: int, body: bytes, *key: int) -> Any:
    try:
        if checksum_of(body, *key) == checksum:
            return decoder.decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    raise StoreDamaged(f"{what} is damaged")
