"""With which code a command ends, so that scripts can tell what to do next.

| code | meaning |
|---|---|
| 0 | done |
| 1 | it failed, or some of it did; it may succeed later |
| 2 | the command or its input is wrong |
| 3 | no connection to the server |
| 4 | no right to do this |
| 5 | there is no such queue or message |
| 130 | interrupted |
"""

from __future__ import annotations

import sys
from typing import NoReturn

from pushlane.wire.errors import PushlaneError

FAILED = 1
WRONG = 2
INTERRUPTED = 130

_BY_CODE = {
    "bad_request": WRONG,
    "too_large": WRONG,
    "connection_lost": 3,
    "unauthorized": 4,
    "forbidden": 4,
    "not_found": 5,
}
_ADVICE = {
    "connection_lost": "Is the server running, and is this its address? See --url and PUSHLANE_URL",
    "unauthorized": "Set PUSHLANE_TOKEN or give --token-file; `pushlane token create` makes tokens",
}


def exit_code(error: PushlaneError) -> int:
    return _BY_CODE.get(error.code, FAILED)


def explain_error(error: PushlaneError) -> str:
    """What went wrong, and the next step, in one line."""
    advice = _ADVICE.get(error.code, error.info.advice)
    return f"{error.code}: {error}. {advice}"


def fail(text: str, code: int = WRONG) -> NoReturn:
    """End the command with a line on stderr."""
    print(f"pushlane: {text}", file=sys.stderr)
    sys.exit(code)
