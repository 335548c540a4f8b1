"""The Lua scripts, and the names that Redis has for them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

_COMMON = "common"


class Script:
    """A script. Redis knows it by its hash, once it was loaded, until it restarts."""

    __slots__ = ("sha", "text")

    def __init__(self, name: str) -> None:
        folder = files(__package__) / "lua"
        parts = [(folder / f"{part}.lua").read_text("utf-8") for part in (_COMMON, name)]
        self.text = "\n".join(parts)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


CLAIM = Script("claim")
OVERWRITE = Script("overwrite")
GRANT = Script("grant")
RELEASE = Script("release")
REMEMBER = Script("remember")

SCRIPTS = {script.sha: script for script in (CLAIM, OVERWRITE, GRANT, RELEASE, REMEMBER)}
