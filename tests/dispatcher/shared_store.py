"""A scripted store of several processes: the script says what others do to this one."""

from __future__ import annotations

import trio

from pushlane_storage.bucket import ShardKey
from tests.dispatcher.rig import Script, ScriptedStore


class SharedScriptedStore(ScriptedStore):
    def __init__(self) -> None:
        super().__init__()
        self.rivals = Script(self, ("confirm", "lost_slots", "release"))

    async def confirm(self, shard: ShardKey) -> None:
        await trio.lowlevel.checkpoint()

    async def lost_slots(self) -> list[tuple[int, int]]:
        await trio.lowlevel.checkpoint()
        return []

    async def release(self, slot: int) -> None:
        await trio.lowlevel.checkpoint()
