"""With which code a command ends, so that scripts can tell what to do next.

| code | meaning |
|---|---|
| 0 | done |
| 1 | it failed, or some of it did; it may succeed later |
| 2 | the command or its input is wrong |
| 3 | no connection to the server |
| 4 | no right to do this |
| 5 | there is no such queue or message |
| 130 | interrupted, by Ctrl-C or SIGTERM |
"""

from __future__ import annotations

import sys
from typing import NoReturn

from pushlane.wire.errors import PushlaneError

FAILED = 1
WRONG = 2
NOT_FOUND = 5
INTERRUPTED = 130

_BY_CODE = {
    "bad_request": WRONG,
    "too_large": WRONG,
    "connection_lost": 3,
    "unauthorized": 4,
    "forbidden": 4,
    "not_found": NOT_FOUND,
}
_ADVICE = {
    "bad_request": "",  # the message says what is wrong, and here nobody wrote a request
    "connection_lost": "Is the server running there (`pushlane serve` starts one)? --url or "
    "PUSHLANE_URL give another address, `pushlane doctor` looks closer",
    "unauthorized": "Set PUSHLANE_TOKEN or give --token-file; on the server's machine "
    "`pushlane token create` makes a key",
    "forbidden": "Use a key with that right: `pushlane token create` makes one",
    "not_found": "`pushlane queue list` shows the queues there are",
}


def exit_code(error: PushlaneError) -> int:
    return _BY_CODE.get(error.code, FAILED)


def explain_error(error: PushlaneError) -> str:
    """What went wrong, and the next step, in one line."""
    advice = _ADVICE.get(error.code, error.info.advice)
    if error.code == "not_found" and "queue" not in str(error):
        advice = "An id is what `pushlane publish` printed"
    return f"{error.code}: {error}. {advice}" if advice else f"{error.code}: {error}"


def fail(text: str, code: int = WRONG) -> NoReturn:
    """End the command with a line on stderr."""
    print(f"pushlane: {text}", file=sys.stderr)
    sys.exit(code)
