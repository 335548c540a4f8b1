"""The two encodings of a frame, `JSON` and `MSGPACK`, behind one small interface.

Decoders and encoders are made once. Decoding takes the fast, typed way; what fails there gets a
second look in probe.py, which tells bytes that are no frame at all (NotAFrame: close the session)
from bad frames (BadFrame, a BadRequest with the id to answer to: the session lives).

msgspec doesn't look at the UTF-8 of what it skips (bodies, unknown fields), so a JSON frame is
checked as a whole first; nearly all are ASCII, which is quickest to see.

A decoded JSON body is a view of its frame (body.copy_body before keeping it); a MessagePack body is
copied out of its bin and checked to be JSON text. So both encodings decode into equal frames. How
deep a body is nested is a limit, and left to `validate`. Input is `bytes`: a buffer that is used
again would change under the views.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, ValidationError
from msgspec.structs import replace

from .body import check_text
from .errors import BadFrame, BadRequest
from .frames import (
    AnyFrame,
    ClientFrame,
    Deliver,
    DeliverMessage,
    Publish,
    PublishMessage,
    ServerFrame,
)
from .parts import COUNTED_BYTES, check_json_parts, check_msgpack_parts
from .probe import FAULTS, json_fault, msgpack_fault

T = TypeVar("T")
M = TypeVar("M", PublishMessage, DeliverMessage)

_NO_BIN = "body must be a bin that holds JSON text"


class Codec(ABC):
    """One encoding of frames."""

    subprotocol: str
    is_text: bool
    """Whether its frames travel as text frames; the other kind is close 1003."""

    @abstractmethod
    def decode_client(self, data: bytes) -> ClientFrame:
        """Read a frame from a client; raises NotAFrame or BadFrame."""

    @abstractmethod
    def decode_server(self, data: bytes) -> ServerFrame:
        """Read a frame from a server; raises NotAFrame or BadFrame."""

    @abstractmethod
    def encode(self, frame: AnyFrame) -> bytes:
        """Write a frame."""


def decode_json(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Read any JSON object of the protocol (an HTTP body, say) with the errors of a frame."""
    try:
        if not data.isascii():
            data.decode()
        if len(data) > COUNTED_BYTES:
            check_json_parts(data)
        return decoder.decode(data)
    except FAULTS as fault:
        raise json_fault(data, fault) from None


class _JsonCodec(Codec):
    subprotocol = "pushlane.v1.json"
    is_text = True

    def __init__(self) -> None:
        self._client: msgspec.json.Decoder[ClientFrame] = msgspec.json.Decoder(ClientFrame)
        self._server: msgspec.json.Decoder[ServerFrame] = msgspec.json.Decoder(ServerFrame)
        self._encoder = msgspec.json.Encoder()

    def decode_client(self, data: bytes) -> ClientFrame:
        return decode_json(self._client, data)

    def decode_server(self, data: bytes) -> ServerFrame:
        return decode_json(self._server, data)

    def encode(self, frame: AnyFrame) -> bytes:
        return self._encoder.encode(frame)


class _MsgpackCodec(Codec):
    subprotocol = "pushlane.v1.msgpack"
    is_text = False

    def __init__(self) -> None:
        self._client: msgspec.msgpack.Decoder[ClientFrame] = msgspec.msgpack.Decoder(ClientFrame)
        self._server: msgspec.msgpack.Decoder[ServerFrame] = msgspec.msgpack.Decoder(ServerFrame)
        self._bin = msgspec.msgpack.Decoder(bytes)
        self._encoder = msgspec.msgpack.Encoder()

    def decode_client(self, data: bytes) -> ClientFrame:
        try:
            if len(data) > COUNTED_BYTES:
                check_msgpack_parts(data)
            frame = self._client.decode(data)
        except FAULTS as fault:
            raise msgpack_fault(data, fault) from None
        if type(frame) is Publish:
            self._open_published(frame)
        return frame

    def decode_server(self, data: bytes) -> ServerFrame:
        try:
            frame = self._server.decode(data)
        except FAULTS as fault:
            raise msgpack_fault(data, fault) from None
        if type(frame) is Deliver:
            self._open_delivered(frame)
        return frame

    def encode(self, frame: AnyFrame) -> bytes:
        return self._encoder.encode(self._packed(frame))

    def _open_published(self, frame: Publish) -> None:
        for index, message in enumerate(frame.messages):
            if message.body is UNSET:
                continue
            try:
                text = self._bin.decode(message.body)
                check_text(text)
            except ValidationError:
                raise _bad_body(index, _NO_BIN, id=frame.id, op="publish") from None
            except BadRequest as error:
                raise _bad_body(index, error.message, id=frame.id, op="publish") from None
            message.body = Raw(text)

    def _open_delivered(self, frame: Deliver) -> None:
        for index, message in enumerate(frame.messages):
            if message.body is UNSET:
                continue
            try:
                # The server checked it when it was published.
                text = self._bin.decode(message.body)
            except ValidationError:
                raise _bad_body(index, _NO_BIN, sub=frame.sub, op="deliver") from None
            message.body = Raw(text)

    def _packed(self, frame: AnyFrame) -> AnyFrame:
        if type(frame) is Publish:
            return replace(frame, messages=[self._pack(message) for message in frame.messages])
        if type(frame) is Deliver:
            return replace(frame, messages=[self._pack(message) for message in frame.messages])
        return frame

    def _pack(self, message: M) -> M:
        if message.body is UNSET:
            return message
        return replace(message, body=Raw(self._encoder.encode(bytes(message.body))))


def _bad_body(
    index: int, what: str, *, op: str, id: int | None = None, sub: int | None = None
) -> BadFrame:
    return BadFrame(f"messages[{index}]: {what}", id=id, op=op, sub=sub)


JSON: Codec = _JsonCodec()
MSGPACK: Codec = _MsgpackCodec()

CODECS: dict[str, Codec] = {codec.subprotocol: codec for codec in (JSON, MSGPACK)}


def negotiate(offered: Iterable[str]) -> Codec:
    """The first known of the subprotocols a client offers; JSON when it offers none."""
    names = list(offered)
    for name in names:
        if name in CODECS:
            return CODECS[name]
    if names:
        raise BadRequest(f"no known subprotocol: {' or '.join(CODECS)}")
    return JSON
