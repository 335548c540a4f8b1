"""Phrases that we keep out of what users read, each with a better one beside it.

They are old, or read like a riddle, or are translated too literally. A phrase is a regular
expression over whole words, without regard to capitals; line breaks count as spaces.
"""

from __future__ import annotations

import re

BETTER = {
    r"mend(s|ed|ing)?": "fix",
    r"whence": "where … from",
    r"whither": "where … to",
    r"hither|thither": "here, there",
    r"so many": "this many, at most N",
    r"so often may": "how often … may",
    r"goes with neither": "can't be combined with",
    r"is no url of": "not a server URL",
    r"is it well": "is it healthy",
    r"lost to sight": "(say what can be seen)",
    r"for whom": "read this if you …",
    r"without more ado": "without further work",
    r"none the worse": "not affected",
    r"for want of": "because there is no",
    r"anew": "again",
    r"a python of": "Python",
    r"astray": "lost",
    r"hindered": "blocked, held up",
    r"nigh|lest|albeit|thereof|therein|whereof|wherein|hitherto|henceforth": "(plain words)",
    r"one object a line": "one object per line",
    r"one line an event": "one line per event",
    r"no good": "invalid",
    r"don't go together": "can't be combined",
    r"is no (url|receipt|json|toml|port|host|name|time|store|duration|number|socket)": "is not a …",
    r"show me, in a minute": "take the 1-minute tour",
    r"the server counts the same": "server totals match",
}


def found(text: str) -> list[str]:
    """What should be said better, and how, in the order of the list."""
    plain = re.sub(r"`[^`\n]*`", "``", text)  # names of things are what they are
    plain = re.sub(r"\s+", " ", plain)
    return [
        f"{match[0]!r}: say {better!r}"
        for phrase, better in BETTER.items()
        for match in re.finditer(rf"\b(?:{phrase})\b", plain, re.IGNORECASE)
    ]
