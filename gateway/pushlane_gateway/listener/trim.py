"""Memory that was freed, given back to the system.

glibc keeps freed memory for later, and one small object above it keeps all of it. That is right for
the usual comings and goings; after an attack it would leave the process as large as it ever was.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def find_trim() -> Callable[[], None]:
    """A function to call in a thread; where the C library has no such thing it does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
