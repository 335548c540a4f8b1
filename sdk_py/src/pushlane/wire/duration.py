"""How long, as people say it: `90d`, `12h`, `30m`, `45s`, `2w`."""

from __future__ import annotations

import re

from .errors import BadRequest
from .limits import DAY, HOUR, MINUTE, SECOND, YEAR

MAX_MS = 100 * YEAR
"""Longer is as good as for ever: leave it out then."""

_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_FORM = re.compile(r"([0-9]{1,12})([smhdw])", re.ASCII)


def parse_duration(text: str) -> int:
    """Milliseconds."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadRequest(
            f"{text[:50]!a} is not a duration: a number and s, m, h, d or w, such as 90d"
        )
    duration = int(found[1]) * _UNITS[found[2]]
    if not 0 < duration <= MAX_MS:
        raise BadRequest(f"{text!a} is not between a second and a hundred years")
    return duration
