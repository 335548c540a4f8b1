"""How many parts a large frame has, counted before any of them becomes an object.

A part is a message, a header, a receipt, a frame in a pipe's request, a field of what a job sends.
An empty message is one byte of MessagePack and three of JSON, but a hundred bytes in memory: four
megabytes of them would be four hundred. So a frame over `COUNTED_BYTES` may have one part for every
`PART_BYTES`, which ordinary ones are far from: a receipt alone has more. Smaller frames are not
counted: ten thousand numbers, which anybody may publish at once, have 14 bytes each, and the worst
that such a frame can cost is ten megabytes while it is decoded.

msgspec skips what nobody asks for at some gigabytes a second, without making an object of it. So
this decodes the frame into hollow types that count themselves, and stops at the first part too
many. What the types don't see (unknown fields, and all but the last of a field that stands twice)
is decoded all the same, hence bounded, too. Where JSON has few brackets and quotes it can't have
many parts, and that is all there is to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, ValidationError

from .limits import LIMITS

COUNTED_BYTES = 256 * 1024
"""Frames up to this are not counted: ten thousand numbers are less."""
PART_BYTES = 16
"""A larger one has at most one part per this many bytes."""
UNSEEN_BYTES = 64 * 1024
"""What may stand beside the fields that are counted."""
_KEYS_BYTES = 200
"""The names of a message's fields, its brackets and its numbers."""


class TooManyParts(ValidationError):
    """There are more parts than a frame of this size may have."""


class _Tally(threading.local):
    """What the hollow types count: while one frame is decoded, in the thread that does it."""

    left = 0
    """Parts that may still come …"""
    messages = 0
    """… and messages among them."""
    seen = 0
    """Bytes that are parts of messages and may be."""


_tally = _Tally()
_NONE = Raw(b"")


class _Part(Struct, gc=False):
    def __post_init__(self) -> None:
        _tally.left -= 1
        if _tally.left < 0:
            raise ValueError("stop")  # msgspec makes a ValidationError of it


class _Message(Struct, gc=False):
    body: Raw = _NONE
    data: Raw = _NONE
    headers: Raw = _NONE
    key: Raw = _NONE
    dedup: Raw = _NONE

    def _see(self, size: Callable[[Raw], int]) -> None:
        headers = len(self.headers)
        _tally.seen += (
            headers + len(self.body) + len(self.data) + len(self.key) + len(self.dedup)
        ) + _KEYS_BYTES
        _tally.messages -= 1
        _tally.left -= 1 + (size(self.headers) if headers else 0)
        if _tally.left < 0 or _tally.messages < 0:
            raise ValueError("stop")


class _JsonMessage(_Message, gc=False):
    def __post_init__(self) -> None:
        self._see(_json_headers)


class _MsgpackMessage(_Message, gc=False):
    def __post_init__(self) -> None:
        self._see(_msgpack_size)


class _Frame(Struct, gc=False):
    messages: Raw | UnsetType = UNSET
    frames: Raw | UnsetType = UNSET
    receipts: Raw | UnsetType = UNSET

    @property
    def listed(self) -> tuple[Raw, ...]:
        """What jobs send in lists."""
        return ()


class _JsonFrame(_Frame, gc=False):
    """Or the body of a request: some have lists that no frame has."""

    bills: Raw | UnsetType = UNSET
    drop: Raw | UnsetType = UNSET

    @property
    def listed(self) -> tuple[Raw, ...]:
        return tuple(field for field in (self.bills, self.drop) if field is not UNSET)


def _json_headers(value: Raw) -> int:
    """Each is two strings."""
    return bytes(value).count(b'"') // 4


def _json_receipts(value: Raw) -> int:
    return bytes(value).count(b'"') // 2


def _msgpack_size(value: Raw) -> int:
    """What the head of an array or a map says."""
    head = bytes(value)[:5]
    if head[0] >> 4 in (0x8, 0x9):
        return head[0] & 0x0F
    if head[0] in (0xDC, 0xDE):
        return int.from_bytes(head[1:3], "big")
    if head[0] in (0xDD, 0xDF):
        return int.from_bytes(head[1:5], "big")
    return 0  # neither: it is refused as soon as it is decoded


class _Counter:
    """Counts the parts of frames in one encoding."""

    def __init__(
        self, decoder: Callable[[Any], Any], frame: Any, message: Any, size: Callable[[Raw], int]
    ) -> None:
        self._frame = decoder(frame).decode
        self._messages = decoder(list[message]).decode
        self._frames = decoder(list[_Part]).decode
        self._size = size

    def check(self, data: bytes) -> None:
        """Raise TooManyParts; or what is wrong with the frame itself, a DecodeError."""
        try:
            frame: _Frame = self._frame(data)
        except ValidationError:
            return  # it is no object: nothing of it will be decoded
        _tally.left, _tally.messages = len(data) // PART_BYTES, LIMITS["batch"].maximum
        _tally.seen = UNSEEN_BYTES
        fields = (frame.messages, frame.frames, frame.receipts, *frame.listed)
        unseen = len(data) - sum(len(field) for field in fields if field is not UNSET)
        if unseen > UNSEEN_BYTES or not self._fits(frame):
            raise TooManyParts(
                "too many small parts: a large frame has at most one message, header or receipt "
                f"for every {PART_BYTES} bytes"
            )

    def _fits(self, frame: _Frame) -> bool:
        if frame.receipts is not UNSET:
            _tally.left -= self._size(frame.receipts)
        _tally.left -= sum(bytes(field).count(b":") for field in frame.listed)
        try:
            if frame.frames is not UNSET:
                self._frames(frame.frames)
        except ValidationError:
            return False
        try:
            if frame.messages is not UNSET:
                self._messages(frame.messages)
                return len(frame.messages) <= _tally.seen
        except ValidationError:
            pass  # a part too many, or one of another type: decoding will stop there, too
        return _tally.left >= 0 and _tally.messages >= 0


_json = _Counter(msgspec.json.Decoder, _JsonFrame, _JsonMessage, _json_receipts)
_msgpack = _Counter(msgspec.msgpack.Decoder, _Frame, _MsgpackMessage, _msgpack_size)


def check_json_parts(data: bytes) -> None:
    """Raise TooManyParts, or DecodeError."""
    # Between two parts there is a comma; the first of each message's headers has none.
    if len(data) > COUNTED_BYTES and 2 * data.count(b",") + 2 > len(data) // PART_BYTES:
        _json.check(data)


def check_msgpack_parts(data: bytes) -> None:
    """Raise TooManyParts, or DecodeError."""
    if len(data) > COUNTED_BYTES:
        _msgpack.check(data)
