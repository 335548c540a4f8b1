"""Bodies: any JSON value, checked once and then carried byte for byte.

Two checks, apart because they are due at different places:

- `check_text`: well-formed UTF-8 JSON. In a JSON frame the decoder of the frame has done this for
  every body already (`msgspec.Raw` runs the same strict grammar without making Python objects); in
  MessagePack a body is a bin, and nobody has looked into it yet.
- `check_depth`: at most 500 arrays and objects inside each other. A body of depth d has at least 2d
  bytes, so one below 1002 bytes needs no look at all: the usual message costs one comparison.

What is JSON here: RFC 8259. Integers of any size and duplicate keys are fine, since nobody reads
them. NaN and Infinity are refused. Refused too is an escape for half a surrogate pair
(`"\\ud800"`): the grammar allows it, but it has no UTF-8 form, and Go, Rust, msgspec and others
fail on it or change it silently; a body that only some consumers can read is a poisoned message.

msgspec recurses over nested values, with Python's recursion limit (1000) as its guard. A body that
hits it is deeper than 500, unless the caller itself stands several hundred calls deep; it is
refused as too deep in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import msgspec
from msgspec import DecodeError, Raw

from .errors import BadRequest
from .limits import DEFAULTS

MAX_DEPTH = DEFAULTS.body_depth

copy_body: Callable[[Raw], bytes] = bytes
"""A body's own bytes. Whoever keeps a body past its frame must keep this, not the Raw.

A Raw from a decoder is a view: one kept 20-byte body would keep its whole frame of up to 4 MiB in
memory.
"""

_RAW = msgspec.json.Decoder(Raw)
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def check_json(raw: bytes, depth: int = MAX_DEPTH) -> None:
    """Raise BadRequest unless this is well-formed UTF-8 JSON of at most this depth."""
    check_text(raw)
    if len(raw) >= 2 * (depth + 1):
        check_depth(raw, depth)


def check_text(raw: bytes) -> None:
    """Raise BadRequest unless this is well-formed UTF-8 JSON."""
    try:
        if not raw.isascii():
            raw.decode()
        _RAW.decode(raw)
    except UnicodeDecodeError as exc:
        raise BadRequest(f"body is not UTF-8: {exc.reason} (byte {exc.start})") from None
    except DecodeError as exc:
        raise BadRequest(f"body is not JSON: {exc}") from None
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None


def check_depth(raw: bytes | Raw, depth: int = MAX_DEPTH) -> None:
    """Raise BadRequest if *well-formed* JSON is nested deeper than this. Does not recurse."""
    text = bytes(raw)
    if text.count(b"[") + text.count(b"{") <= depth:
        return
    levels = accumulate(map(_STEP.__getitem__, _brackets(text)))
    if max(levels, default=0) > depth:
        raise too_deep(depth)


def too_deep(depth: int) -> BadRequest:
    """The error for a body with too many levels."""
    return BadRequest(f"body is nested deeper than {depth}", limit="body_depth")


def _brackets(text: bytes) -> bytes:
    """The brackets of well-formed JSON that stand outside of strings."""
    # Without escaped backslashes and quotes, every second piece between quotes is a string. Two
    # quotes side by side can go first, whichever they are: what is left stays inside or outside.
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    return b"".join(plain.replace(b'""', b"").split(b'"')[::2])
