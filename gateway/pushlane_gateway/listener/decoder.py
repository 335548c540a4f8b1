"""Bytes of a WebSocket client to messages: a quick way for nearly all, a complete one for the rest.

Nearly every frame that reaches a queue is small, whole, masked and of the agreed type. Those are
read here by hand: about a microsecond each, where the generators of `ServerProtocol` take seven.
Everything else goes to `ServerProtocol` byte by byte as it came: control frames, fragments, frames
of 64 KiB and more, the wrong type, and all that is against the protocol. So there is one authority
on what is legal, and a fuzz test shows that the quick way never disagrees with it.

The walk over frame headers knows where each frame ends. Hence `ServerProtocol` always gets whole
frames, and between two messages there is nothing in it: it is made when it is needed and dropped
afterwards, and an idle connection has none.

What one call does is bounded. Before a client is admitted (its hello was good) its frames are
small, and they are handed out one at a time: so the limit is the right one for each. Afterwards a
call gives at most `MESSAGES`. Control frames and tiny fragments cost much and bring nothing: a
client may send some, at a rate.

One thing is done differently from `ServerProtocol`: a close in the middle of a fragmented message
is a close like any other (RFC 6455, 5.4 and 5.5.1), not a protocol error.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from websockets.frames import BINARY, CLOSE, CONT, TEXT, Close, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.speedups import apply_mask

from pushlane.wire.errors import CLOSES

quiet = logging.getLogger(__name__ + ".protocol")
# At level DEBUG `websockets` logs frames, and so tokens.
quiet.setLevel(logging.WARNING)

LOST = 1006
"""The code of a connection that ended without a close."""


_OPCODES = frozenset(Opcode)

MESSAGES = 1_024
"""Messages that one call gives: about a millisecond's work, and more than a read usually has."""
SKIPPED = 1_024
"""Frames behind our close that are looked at: a client that sends more is not about to answer."""
TINY_BYTES = 256
"""A fragment of less, with more to come, is counted like a control frame."""


class End(NamedTuple):
    """How a connection ended, as far as the frames tell."""

    code: int
    reason: str
    by_client: bool
    """The client closed or went away; else it did something that made us close."""
    fault: str = ""
    """What was wrong, for the log and the client."""


class Decoder:
    __slots__ = (
        "_burst",
        "_closing",
        "_discard",
        "_head",
        "_limit",
        "_most",
        "_owed",
        "_part",
        "_protocol",
        "_rest",
        "_skipped",
        "_wanted",
        "end",
        "held",
        "more",
        "out",
        "tiny",
    )

    def __init__(self, *, is_text: bool, frame_bytes: int, tiny_frames: int) -> None:
        """`frame_bytes`: until it is told another limit by `admit`."""
        assert frame_bytes >= 0xFFFF, "the quick way doesn't look at the limit"
        self._head = 0x81 if is_text else 0x82
        self._limit = frame_bytes
        self._most = 1
        self._burst = tiny_frames
        self._closing = False
        self._discard = 0
        self._rest = b""
        self._skipped = 0
        self._wanted = 0
        self._owed = 0
        self._protocol: ServerProtocol | None = None
        self._part: bytearray | None = None
        self.out: list[bytes] = []
        """Frames to be sent: pongs, the answer to a close, a close because of an error."""
        self.end: End | None = None
        self.held = 0
        """Bytes that wait here for others to come."""
        self.more = False
        """There are bytes left that may complete messages: `feed` on, with nothing."""
        self.tiny = 0.0
        """Control frames and tiny fragments that count; whoever knows the time lowers it."""

    def admit(self, frame_bytes: int) -> None:
        """Take frames of this size from now on, and many at a time."""
        self._limit = frame_bytes
        self._most = MESSAGES

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. What follows an end is ignored."""
        self.more = False
        if self._discard:
            discard = min(self._discard, len(data))
            self._discard -= discard
            data = data[discard:]
        if self._rest:
            data = self._rest + data
            if len(data) < self._wanted:
                self._rest = data
                self._count_held()
                return []
            self._rest = b""
        messages: list[bytes] = []
        position = 0
        while self.end is None:
            if self._owed == 0:
                if self._closing:
                    position = self._skip(data, position)
                elif self._protocol is None:
                    position = self._quick(data, position, messages)
                    if position == len(data):
                        break
                if len(messages) >= self._most:
                    self.more = position < len(data)
                    self._wanted = 0
                    break
                if not self._begin(data, position):
                    break
            piece = data[position : position + self._owed]
            if not piece:
                break
            position += len(piece)
            self._owed -= len(piece)
            self._complete(piece, messages)
        if self.end is None and position < len(data):
            self._rest = data[position:]
        if self.held or self._rest or self._protocol is not None:
            self._count_held()
        return messages

    def _count_held(self) -> None:
        size = len(self._rest)
        if self._protocol is not None:  # it is there as long as a message is in parts
            size += len(self._part or b"") + len(self._protocol.reader.buffer)
        self.held = size

    def feed_eof(self) -> None:
        """The client sends nothing more."""
        if self.end is None:
            self.end = End(LOST, "", by_client=True)

    def close(self, code: int, reason: str) -> bytes:
        """A close to be sent; what comes then is only watched for the client's answer."""
        self._closing = True
        self._discard, self._owed, self._part = self._owed, 0, None
        self._drop_protocol()
        protocol = self._open_protocol()
        protocol.send_close(code, reason)
        self._count_held()
        return b"".join(protocol.data_to_send())

    def fail(self, code: int, fault: str) -> None:
        """End it because of something that frames don't show, and keep nothing."""
        if self.end is None:
            self._fail(code, fault)
        self.drop()

    def drop(self) -> None:
        """Give back what is buffered: nothing more will be read."""
        self._rest, self._part, self.more, self.held = b"", None, False, 0
        self._drop_protocol()

    def _quick(self, data: bytes, position: int, messages: list[bytes]) -> int:
        """Read small whole messages; says where that stopped."""
        head, size, room = self._head, len(data), self._most - len(messages)
        while room and size - position >= 6 and data[position] == head:
            length = data[position + 1] - 128
            start = position + 6
            if length > 125:
                if length != 126:
                    break
                length = data[position + 2] << 8 | data[position + 3]
                start = position + 8
            stop = start + length
            if length < 0 or stop > size:
                break
            message = apply_mask(data[start:stop], data[start - 4 : start])
            if not message.isascii() and not self._is_legal(message):
                break
            messages.append(message)
            position = stop
            room -= 1
        return position

    def _skip(self, data: bytes, position: int) -> int:
        """Pass over all but a close, which costs little; says where that stopped.

        A flood goes on when we have closed. So this is for a while only: then it is over, and what
        still comes is thrown away unread, until the client has seen our close and ends, too.
        """
        size = len(data)
        while size - position >= 6 and data[position] & 0x0F != CLOSE and not self._discard:
            self._skipped += 1
            if self._skipped > SKIPPED:
                self.end = End(LOST, "", by_client=False)
                return size
            length = data[position + 1] - 128
            if length < 0:
                break
            start = position + 6
            if length > 125:
                extra = 2 if length == 126 else 8
                if size - start < extra:
                    break
                length = int.from_bytes(data[position + 2 : position + 2 + extra], "big")
                start += extra
            position = start + length
            if position > size:
                self._discard, position = position - size, size
        return position

    def _begin(self, data: bytes, position: int) -> bool:
        """Look at the next header; whether the protocol is to read what is there of that frame."""
        have = len(data) - position
        self._wanted = 2
        if have < 2 or self.end is not None:
            return False
        first, second = data[position], data[position + 1]
        length = second & 0x7F
        size = 2 + (2 if length == 126 else 8 if length == 127 else 0)
        if not second & 0x80 or first & 0x0F not in _OPCODES:
            self._owed = size  # enough for the protocol to refuse it
            return True
        self._wanted = size
        if have < size:
            return False
        if length > 125:
            length = int.from_bytes(data[position + 2 : position + size], "big")
        size += 4 + length
        self._wanted = size
        if first == self._head and self._protocol is None and length <= 0xFFFF and have < size:
            return False
        if first & 0x0F == CLOSE:
            self._open_protocol().current_size = None
        self._owed = size
        return True

    def _complete(self, piece: bytes, messages: list[bytes]) -> None:
        """Let the protocol read, and take what comes of it."""
        protocol = self._open_protocol()
        protocol.receive_data(piece)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame), "there is no handshake in it"
            self._take(frame, messages)
        if self.end is not None:
            return
        out = [bytes(written) for written in protocol.data_to_send() if written]
        if protocol.parser_exc is not None:
            close = protocol.close_sent
            assert close is not None, "an error in the frames closes"
            self._end_by_fault(int(close.code), str(protocol.parser_exc), tell=bool(out))
            return
        self.out += out
        if protocol.close_rcvd is not None:
            closed = protocol.close_rcvd
            self.end = End(int(closed.code), closed.reason, by_client=True)
        elif self._owed == 0 and self._part is None and protocol.state is OPEN:
            self._drop_protocol()

    def _take(self, frame: Frame, messages: list[bytes]) -> None:
        if frame.opcode is TEXT or frame.opcode is BINARY:
            if frame.opcode != self._head & 0x0F:
                wanted = "text" if self._head == 0x81 else "binary"
                self._fail(1003, f"this session has {wanted} frames only")
                return
            if frame.fin:
                self._give(bytes(frame.data), messages)
                return
            self._part = bytearray(frame.data)
        elif frame.opcode is CONT:
            assert self._part is not None, "the protocol refuses a continuation of nothing"
            self._part += frame.data
            if frame.fin:
                message, self._part = bytes(self._part), None
                self._give(message, messages)
                return
        elif frame.opcode is CLOSE:
            return
        if len(frame.data) < TINY_BYTES:
            self._count()

    def _give(self, message: bytes, messages: list[bytes]) -> None:
        if message.isascii() or self._is_legal(message):
            messages.append(message)

    def _count(self) -> None:
        """One more control frame or tiny fragment."""
        self.tiny += 1
        if self.tiny > self._burst:
            self._fail(1008, "pings, pongs or tiny fragments come too fast", "throttled")

    def _is_legal(self, message: bytes) -> bool:
        """Whether text is UTF-8; what is not ends the connection."""
        if self._head == 0x82:
            return True
        try:
            message.decode()
        except UnicodeDecodeError:
            self._fail(1007, "text that is not UTF-8")
            return False
        return True

    def _fail(self, code: int, fault: str, reason: str | None = None) -> None:
        """The frame was legal, but isn't for us."""
        protocol = self._open_protocol()
        protocol.fail(code)
        out = any(protocol.data_to_send())
        self._end_by_fault(code, fault, tell=out, reason=reason)

    def _end_by_fault(
        self, code: int, fault: str, *, tell: bool, reason: str | None = None
    ) -> None:
        """`tell`: a close is due, unless we sent one before."""
        reason = reason or CLOSES[code].reason
        if tell:
            self.out.append(Frame(CLOSE, Close(code, reason).serialize()).serialize(mask=False))
        self.end = End(code, reason, by_client=False, fault=fault)

    def _open_protocol(self) -> ServerProtocol:
        if self._protocol is None:
            self._protocol = ServerProtocol(state=OPEN, max_size=self._limit, logger=quiet)
        return self._protocol

    def _drop_protocol(self) -> None:
        """It and its parser, a generator, hold each other: closed, both go at once."""
        if self._protocol is not None:
            self._protocol.parser.close()
            self._protocol.parser_exc = None  # its traceback holds them, too
            self._protocol = None
