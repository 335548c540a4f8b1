"""Text that must not be seen: it shows itself only to who asks for it by name.

Secrets leak by accident, through a log line, a traceback or a printed configuration. So a secret
is never a plain string for longer than it takes to use it; what prints it prints stars.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

MASK = "***"


class Secret:
    """A secret string. `reveal` is the only way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __len__(self) -> int:
        return len(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")

    def _bytes(self) -> bytes:
        return self._text.encode("utf-8", "surrogatepass")
