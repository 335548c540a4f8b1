"""A scripted store of several processes: the script says what others do to this one."""

from __future__ import annotations

from tests.dispatcher.rig import Script, ScriptedStore


class SharedScriptedStore(ScriptedStore):
    def __init__(self) -> None:
        super().__init__()
        self.ownership.shared = True
        self.rivals = Script(self)
        self.rivals.follow(self.ownership, confirm="confirm", lost="lost", release="release")
