"""The second, lenient look at bytes that are no valid frame: whose fault, and what to answer.

Only the error path comes here. Bytes that are not JSON or MessagePack at all make a NotAFrame (the
session is closed); a well-formed object that is no frame makes a BadFrame with the `id`, `op` and
`sub` that can be read from it, so that the request it was meant to be gets its one answer.

Two mistakes need more care than msgspec's word for them:

- Half a surrogate pair in an escape (`"\\ud83d"`, what JavaScript makes of a string cut in the
  middle of an emoji) stops msgspec like a syntax error. Closing the session for it would make the
  client reconnect and repeat the same frame for ever. It is a BadFrame.
- Nesting that is too deep for msgspec hides the rest of the frame. The text before the first and
  after the last inner bracket is looked at instead: there `id` and `op` stand in a publish. Whether
  the middle is well-formed is not known then, and the session gets the benefit of the doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType

from .body import MAX_DEPTH
from .errors import BadFrame, NotAFrame
from .frames import Id, Sub
from .limits import DEFAULTS
from .parts import TooManyParts

FAULTS = (DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises on bad bytes."""

_SHOWN = 200
_INNER = re.compile(rb"[\[{]")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TOO_DEEP = f"nested deeper than {MAX_DEPTH}"


class _Probe(Struct, gc=False):
    id: Raw | UnsetType = UNSET
    op: Raw | UnsetType = UNSET
    sub: Raw | UnsetType = UNSET


class _Reader:
    """The lenient decoders of one encoding."""

    def __init__(self, decoder: Callable[[Any], Any]) -> None:
        self.well_formed = decoder(Raw).decode
        self._probe = decoder(_Probe).decode
        self._id = decoder(Id).decode
        self._op = decoder(str).decode
        self._sub = decoder(Sub).decode

    def bad_frame(self, message: str, data: bytes, limit: str | None = None) -> BadFrame:
        """A BadFrame with what can be read of the frame."""
        probe = _or_none(self._probe, data) or _Probe()
        op = _or_none(self._op, probe.op)
        return BadFrame(
            message,
            id=_or_none(self._id, probe.id),
            op=op and op[:_SHOWN],
            sub=_or_none(self._sub, probe.sub),
            limit=limit,
        )


_JSON = _Reader(msgspec.json.Decoder)
_MSGPACK = _Reader(msgspec.msgpack.Decoder)


def json_fault(data: bytes, fault: Exception) -> NotAFrame | BadFrame:
    """What to raise for a JSON frame that failed to decode."""
    if isinstance(fault, UnicodeDecodeError):
        return _not_utf8(fault)
    try:
        _well_formed(_JSON, data, fault)
    except RecursionError:
        return _JSON.bad_frame(_TOO_DEEP, _without_middle(data), "body_depth")
    except DecodeError as syntax:
        # Escaped backslashes go first: behind one, \ud83d is plain text.
        fixed = _SURROGATE.sub(rb"\\ufffd", data.replace(b"\\\\", b"__"))
        if _or_none(_JSON.well_formed, fixed) is None:
            return NotAFrame(f"not JSON: {syntax}")
        return _JSON.bad_frame("half a surrogate pair in an escape: no such text exists", fixed)
    return _JSON.bad_frame(_explain(fault), data, _limit(fault))


def msgpack_fault(data: bytes, fault: Exception) -> NotAFrame | BadFrame:
    """What to raise for a MessagePack frame that failed to decode."""
    if isinstance(fault, UnicodeDecodeError):
        return _not_utf8(fault)
    try:
        _well_formed(_MSGPACK, data, fault)
    except RecursionError:
        return BadFrame(_TOO_DEEP, limit="body_depth")
    except DecodeError as syntax:
        return NotAFrame(f"not MessagePack: {syntax}")
    return _MSGPACK.bad_frame(_explain(fault), data, _limit(fault))


def _well_formed(reader: _Reader, data: bytes, fault: Exception) -> None:
    """Raise what is wrong with the bytes themselves, if anything is."""
    if isinstance(fault, RecursionError):
        raise fault
    reader.well_formed(data)


def _not_utf8(fault: UnicodeDecodeError) -> NotAFrame:
    return NotAFrame(f"not UTF-8: {fault.reason} (byte {fault.start})", 1007)


def _limit(fault: Exception) -> str | None:
    """The limits that types know, and their checks tell of: ids are the only bounded strings."""
    text = str(fault)
    if isinstance(fault, TooManyParts):
        return "parts"
    if text.startswith("Expected `array` of length <="):
        return "batch" if text.endswith(".messages`") else "settle"
    if f"of length <= {DEFAULTS.id}" in text:
        return "id"
    is_high = f"`int` <= {DEFAULTS.priority_max} " in text and text.endswith(".priority`")
    return "priority_max" if is_high else None


def _explain(fault: Exception) -> str:
    """msgspec's message, with the field in front and cut to a bearable length."""
    what, _, where = str(fault).rpartition(" - at ")
    if not what:
        return where[:_SHOWN]
    field = where.strip("`").removeprefix("$").removeprefix(".")
    if field == "op" and what.startswith("Invalid value"):
        what = what.replace("Invalid value", "unknown op")
    return f"{field[:_SHOWN]}: {what[:_SHOWN]}"


def _without_middle(data: bytes) -> bytes:
    """The frame with null for all from its first to its last inner bracket."""
    text = data.strip()
    first = _INNER.search(text, 1)
    last = max(text.rfind(b"]", 0, -1), text.rfind(b"}", 0, -1))
    if first is None or last < first.start():
        return b""
    return text[: first.start()] + b"null" + text[last + 1 :]


def _or_none(decode: Callable[[Any], Any], data: Any) -> Any:
    try:
        return decode(data)
    except (*FAULTS, TypeError):  # TypeError: UNSET, the field was not there
        return None
