"""Output that nobody reads any more, as with `pushlane consume orders | head -1`: no fault of ours.

The command ends without a word. What it could not print it did not take: a message is acked after
it was printed.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress


def nobody_reads() -> bool:
    """Whether stdout is a pipe or socket whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # asks for errors only
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no stdout, no descriptor, no poll
        return False


def forget_output() -> None:
    """Send what is still in the buffer nowhere, so that the interpreter can end in peace."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
