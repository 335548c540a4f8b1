"""A client that sends much at once leaves others their turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from pushlane.wire.frames import Credit
from pushlane_gateway.session import connection
from tests.gateway.session.rig import rig

FRAMES = 2_000
FRAME_S = 0.0001


async def test_many_small_frames_let_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        counts = it.metrics.frames_in.counts
        # A clock by which every frame takes the same time, however fast the machine is.
        monkeypatch.setattr(connection, "perf_counter", lambda: counts["credit"] * FRAME_S)
        taken = [0]
        client.say(*[Credit(sub, 1)] * FRAMES)
        with trio.fail_after(1_000):
            while taken[-1] < FRAMES:
                await trio.lowlevel.checkpoint()
                taken.append(counts["credit"])
        longest = max(after - before for before, after in pairwise(taken))
        assert longest * FRAME_S <= 0.01
        assert client.socket.unread == []
