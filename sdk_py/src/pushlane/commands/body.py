"""From what stands on a command line to a message's body: JSON where it is JSON, else a string.

The JSON is carried as it was written, byte for byte. `true`, `17` and `"a"` are JSON; `hello` is
not and becomes the string. Use `--text` where a string that looks like JSON is meant.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from pushlane.wire.body import MAX_DEPTH, too_deep
from pushlane.wire.errors import BadRequest

_JSON = msgspec.json.Decoder(Raw)


def read_body(text: str, *, is_text: bool = False) -> Raw | str:
    """A body for `publish`. What is not UTF-8, or JSON nested beyond reason, is a `BadRequest`."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise BadRequest("a BODY is not UTF-8") from None
    if is_text:
        return text
    try:
        return Raw(bytes(_JSON.decode(raw)))
    except msgspec.DecodeError:
        return text
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None
