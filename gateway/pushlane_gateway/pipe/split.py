"""The frames of a request that does not decode as a whole, apart from each other.

One frame with half a surrogate pair in it, or nested too deeply, is an error of that frame only:
its client gets an `error` and the session lives. Refusing the whole request would make a client
send the same for ever. So where decoding fails the text is cut at its brackets, without looking
into the frames; the session judges each by itself. Only the error path comes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

# A string without an end goes to the end of the text, so that nothing is looked at twice.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_KEY = b'"frames"'
MOST = 100_000
"""Tokens that are looked at: that takes a tenth of a second at most."""


def split(text: bytes) -> tuple[bytes, list[bytes]] | None:
    """The request with an empty list for its frames, and the frames. None: there are none."""
    tokens = islice(_TOKEN.finditer(text), MOST)
    start = _find(tokens)
    if start is None:
        return None
    cuts = _cuts(tokens, start)
    if cuts is None:
        return None
    pieces = [text[one + 1 : other].strip() for one, other in pairwise(cuts)]
    frames = [] if pieces == [b""] else pieces
    return text[: start + 1] + text[cuts[-1] :], frames


def _find(tokens: Iterator[re.Match[bytes]]) -> int | None:
    """Where the list of frames begins, in the outermost object."""
    level, key = 0, b""
    for token in tokens:
        sign = token[0]
        if sign == b"[" and level == 1 and key == _KEY:
            return token.start()
        level += (sign in b"[{") - (sign in b"]}")
        key = sign
    return None


def _cuts(tokens: Iterator[re.Match[bytes]], start: int) -> list[int] | None:
    """That place, the commas between the frames, and where the list ends."""
    cuts, level = [start], 1
    for token in tokens:
        sign = token[0]
        level += (sign in b"[{") - (sign in b"]}")
        if level == 0 or (level == 1 and sign == b","):
            cuts.append(token.start())
        if level == 0:
            return cuts
    return None
