"""Frames on a byte stream: four bytes of length, big endian, then the frame.

Two lengths are no frames. 0 is a beat: the peer is well and has nothing to say. `END` is the last
word of a peer that closes: unlike the bare end of the stream, which a process that dies leaves as
well, it says that nothing is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

HEADER_BYTES = 4
BEAT = b"\0\0\0\0"
END = b"\xff\xff\xff\xff"

_END_SIZE = 0xFFFFFFFF
_size_at: Callable[[bytes | bytearray, int], tuple[int]] = struct.Struct("!I").unpack_from


def framed(frame: bytes) -> bytes:
    """A frame as it goes over the wire. Links do it without this copy."""
    return len(frame).to_bytes(HEADER_BYTES, "big") + frame


class FrameReader:
    """Turns what was read into whole frames, whatever pieces it comes in.

    It keeps one frame that is not complete, and so at most `frame_bytes`.
    """

    __slots__ = ("_most", "_part", "over", "too_long")

    def __init__(self, frame_bytes: int) -> None:
        self._most = frame_bytes
        self._part = bytearray()
        self.over = False
        """The peer said its last word, or something too long: nothing behind it is looked at."""
        self.too_long = 0
        """The length that was too much."""

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """All frames that these bytes complete, in order, each with bytes of its own."""
        frames: list[bytes] = []
        if self.over:
            return frames
        at = self._complete(data, frames) if self._part else 0
        end = len(data)
        while end - at >= HEADER_BYTES and not self.over:
            (size,) = _size_at(data, at)
            start, stop = at + HEADER_BYTES, at + HEADER_BYTES + size
            if size > self._most:
                self._stop(size)
            elif stop > end:
                break
            else:
                at = stop
                if size:
                    frames.append(bytes(data[start:stop]))
        if at < end and not self.over:
            self._part += data[at:]
        return frames

    def _complete(self, data: bytes | bytearray, frames: list[bytes]) -> int:
        """Go on with the frame that has begun; says how much of `data` that took."""
        part = self._part
        at = max(0, HEADER_BYTES - len(part))
        part += data[:at]
        if len(part) < HEADER_BYTES:
            return len(data)
        (size,) = _size_at(part, 0)
        if size > self._most:
            self._stop(size)
            return len(data)
        missing = HEADER_BYTES + size - len(part)
        part += data[at : at + missing]
        if len(data) - at < missing:
            return len(data)
        if size:
            frames.append(bytes(memoryview(part)[HEADER_BYTES:]))
        self._part = bytearray()
        return at + missing

    def _stop(self, size: int) -> None:
        self.over = True
        self._part = bytearray()
        if size != _END_SIZE:
            self.too_long = size
