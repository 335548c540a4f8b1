"""A store that wants few segments at once gets few, and what comes meanwhile gathers."""

import pytest
import trio

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.interface import PacedStore
from tests.dispatcher.rig import Gate, ScriptedStore, blocked, rig


class PacedScriptedStore(ScriptedStore):
    flushes = 2


def test_such_a_store_is_known() -> None:
    assert isinstance(PacedScriptedStore(), PacedStore)
    assert not isinstance(ScriptedStore(), PacedStore)


@pytest.mark.parametrize(
    ("store", "flushes", "at_once"),
    [(ScriptedStore, 5, 5), (PacedScriptedStore, 5, 2), (PacedScriptedStore, 1, 1)],
)
async def test_segments_on_their_way(
    store: type[ScriptedStore], flushes: int, at_once: int
) -> None:
    scripted = store()
    async with rig(scripted, bounds=Bounds(flushes=flushes)) as r:
        await r.publish(b"first")  # it opens the bucket
        gate = Gate()
        scripted.script.always["append"] = gate
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(r.publish, b"%d" % number)
                await blocked()
            assert len(scripted.script.called("append")) == 1 + at_once
            gate.released.set()
        written = [args[1].messages for args in scripted.script.called("append")]
        assert len(written) == 1 + at_once + 1
        assert sum(map(len, written)) == 9
