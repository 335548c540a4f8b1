"""Times as one writes them in a command: `2026-11-01`, `2026-11-01T12:30+02:00`, `yesterday`, `7d`.

Schedulers run the same command every day: hence words. All of it is UTC unless a zone is named.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
FORMS = "a date, a time such as 2026-11-01T12:30, now, today, yesterday, or ago: 30m, 24h, 7d, 2w"


def read_moment(text: str, now: datetime) -> datetime:
    """The time that is meant at `now`; `ValueError`."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now.astimezone(UTC), "today": today, "yesterday": today - timedelta(days=1)}
    if text in named:
        return named[text]
    if ago := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        return now.astimezone(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: give {FORMS}") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
