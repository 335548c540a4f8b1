"""A link that runs: frames, beats, silence, slow peers, and every way in which it ends."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from pushlane_dispatcher.cluster.links.framing import BEAT, END, framed
from pushlane_dispatcher.cluster.links.link import EndCode, Link, LinkEnd
from pushlane_dispatcher.cluster.settings import ClusterSettings
from tests.dispatcher.cluster.rig import agreement, linked, make_end

SMALL = ClusterSettings(frame_bytes=1_000, outbox_bytes=4_000, write_bytes=500)


class Recording(trio.abc.Stream):
    """Remembers each write; what is to be read comes from the test."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False
        self.send_in, self._in = trio.open_memory_channel[bytes](100)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self.writes.append(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self._in.receive()
        except trio.EndOfChannel:
            return b""

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


class Stuck(Recording):
    """A peer that takes nothing."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()


async def test_frames_come_in_order() -> None:
    async with linked() as (a, b):
        for number in range(1_000):
            a.link.send(b"to b %d" % number)
            b.link.send(b"to a %d" % number)
        await wait_all_tasks_blocked()
        assert b.got == [b"to b %d" % number for number in range(1_000)]
        assert a.got == [b"to a %d" % number for number in range(1_000)]
        assert a.link.waiting == 0
        assert a.counters.frames_out == b.counters.frames_in == 1_000
        assert a.counters.bytes_out == b.counters.bytes_in == sum(map(len, b.got)) + 4_000


async def test_the_largest_frame() -> None:
    async with linked(SMALL) as (a, b):
        a.link.send(b"x" * SMALL.frame_bytes)
        await wait_all_tasks_blocked()
        assert b.got == [b"x" * SMALL.frame_bytes]
        with pytest.raises(AssertionError):
            a.link.send(b"x" * (SMALL.frame_bytes + 1))
        with pytest.raises(AssertionError):
            a.link.send(b"")


async def test_what_gathers_in_a_round_leaves_in_one_write() -> None:
    end = make_end(stream := Recording(), "a", "b", SMALL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        await wait_all_tasks_blocked()
        for frame in (b"one", b"two", b"three"):
            end.link.send(frame)
        await wait_all_tasks_blocked()
        end.link.send(b"four")
        await wait_all_tasks_blocked()
        assert stream.writes == [
            framed(b"one") + framed(b"two") + framed(b"three"),
            framed(b"four"),
        ]
        nursery.cancel_scope.cancel()


async def test_what_gathers_elsewhere_is_asked_for_before_the_next_write() -> None:
    end = make_end(stream := Recording(), "a", "b", SMALL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        await wait_all_tasks_blocked()
        end.link.soon(lambda: end.link.send(b"two"))
        end.link.send(b"one")
        await wait_all_tasks_blocked()
        end.link.soon(lambda: end.link.send(b"three"))
        await wait_all_tasks_blocked()
        assert stream.writes == [framed(b"one") + framed(b"two"), framed(b"three")]
        nursery.cancel_scope.cancel()
    end.link.soon(lambda: pytest.fail("it is over"))


async def test_what_gathers_elsewhere_goes_before_the_last_word() -> None:
    async with linked() as (a, b):
        a.link.soon(lambda: a.link.send(b"x"))
        a.link.close("done")
        await wait_all_tasks_blocked()
        assert b.got == [b"x"]
        a.link.soon(lambda: pytest.fail("it is closed"))


async def test_what_gathers_elsewhere_may_be_too_much_when_it_closes() -> None:
    end = make_end(Stuck(), "a", "b", SMALL)
    for _ in range(4):
        end.link.send(b"x" * 950)
    end.link.soon(lambda: end.link.send(b"y" * 200))
    end.link.close("done")
    assert end.link.why is not None
    assert end.link.why.code is EndCode.OVERRUN
    await end.run()


async def test_writes_are_no_longer_than_they_may_be() -> None:
    end = make_end(stream := Recording(), "a", "b", SMALL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        for _ in range(15):
            end.link.send(b"x" * 196)
        await wait_all_tasks_blocked()
        assert [len(data) for data in stream.writes] == [600] * 5
        nursery.cancel_scope.cancel()


async def test_others_get_their_turn_while_many_frames_are_handed_over() -> None:
    end = make_end(stream := Recording(), "a", "b")
    seen: list[int] = []

    async def other() -> None:
        while len(end.got) < 1_000:
            if end.got:
                seen.append(len(end.got))
            await trio.lowlevel.checkpoint()

    stream.send_in.send_nowait(framed(b"x") * 1_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        nursery.start_soon(other)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len({256, 512, 768} & set(seen)) >= 2  # who comes first in a round is drawn


# Time


async def test_a_beat_when_nothing_was_sent(autojump_clock: MockClock) -> None:
    end = make_end(stream := Recording(), "a", "b", ClusterSettings(silence_ms=10_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        await trio.sleep(0.7)
        end.link.send(b"x")
        await trio.sleep(0.9)
        assert stream.writes == [framed(b"x")]
        await trio.sleep(0.2)
        assert stream.writes == [framed(b"x"), BEAT]
        await trio.sleep(3)
        assert stream.writes == [framed(b"x"), *[BEAT] * 4]
        nursery.cancel_scope.cancel()
    assert end.counters.frames_out == 1


async def test_beats_keep_an_idle_link(autojump_clock: MockClock) -> None:
    async with linked() as (a, b):
        await trio.sleep(3_600)
        assert a.link.open
        assert b.link.open
        assert a.got == b.got == []


async def test_silence_ends_it(autojump_clock: MockClock) -> None:
    end = make_end(stream := Recording(), "a", "b")
    began = trio.current_time()
    await end.link.run(end.got.append)
    assert trio.current_time() - began == pytest.approx(3)
    assert end.link.why == LinkEnd(EndCode.SILENT, "nothing came for 3 s")
    assert stream.closed
    assert end.counters.ends == {"silent": 1}


async def test_what_came_during_a_pause_counts(mock_clock: MockClock) -> None:
    """Time jumps, as after a SIGSTOP; what the peer sent meanwhile is there to be read."""
    end = make_end(stream := Recording(), "a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        await wait_all_tasks_blocked()
        for _ in range(100):
            stream.send_in.send_nowait(BEAT)
            mock_clock.jump(10)
            await wait_all_tasks_blocked()
            assert end.link.open
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert end.link.ended
        nursery.cancel_scope.cancel()


async def test_silence_ends_it_though_much_waits(autojump_clock: MockClock) -> None:
    """The peer neither reads nor sends."""
    end = make_end(Stuck(), "a", "b", SMALL)
    end.link.send(b"x" * 900)
    await end.link.run(end.got.append)
    assert end.link.why is not None
    assert end.link.why.code is EndCode.SILENT
    assert end.link.waiting == 0


# A slow peer


async def test_overrun(autojump_clock: MockClock) -> None:
    """It sends beats, and takes nothing: bounded memory, and an end."""
    end = make_end(stream := Stuck(), "a", "b", SMALL)

    async def fill() -> None:
        while end.link.open:
            stream.send_in.send_nowait(BEAT)
            end.link.send(b"x" * 100)
            assert end.link.waiting <= SMALL.outbox_bytes + 4
            await trio.sleep(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fill)
        await end.link.run(end.got.append)
    assert end.link.why == LinkEnd(EndCode.OVERRUN, "3952 bytes waited for b")
    assert end.link.waiting == 0
    assert end.counters.overruns == 1
    assert end.counters.ends == {"overrun": 1}


async def test_a_slow_reader_gets_it_all() -> None:
    """Each write waits until it was read; who sends waits for room."""
    async with linked(SMALL, lockstep_stream_pair) as (a, b):
        most = 0
        for number in range(500):
            await a.link.room(2_000)
            a.link.send(b"%06d" % number * 40)
            most = max(most, a.link.waiting)
        while a.link.waiting:
            await a.link.room(1)
        await wait_all_tasks_blocked()
        assert b.got == [b"%06d" % number * 40 for number in range(500)]
        assert most <= 2_000 + 244


async def test_waiting_for_room_ends_with_the_link() -> None:
    end = make_end(Stuck(), "a", "b", SMALL)
    end.link.send(b"x" * 900)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        nursery.start_soon(end.link.room, 1)
        await wait_all_tasks_blocked()
        end.link.abort()
    assert end.link.ended


# Ends


async def test_close_writes_what_waits_and_takes_what_comes() -> None:
    async with linked(SMALL) as (a, b):
        a.link.send(b"from a")
        b.link.send(b"from b")
        a.link.close("enough")
        a.link.send(b"too late")
        assert not a.link.open
        assert not a.over.is_set()
        await a.over.wait()
        await b.over.wait()
    assert (a.got, b.got) == ([b"from b"], [b"from a"])
    assert a.link.why == LinkEnd(EndCode.CLOSED, "enough")
    assert b.link.why == LinkEnd(EndCode.LEFT, "a closed it")
    assert a.link.ended
    assert b.link.ended
    assert (a.counters.open, a.counters.opened, a.counters.ends) == (0, 1, {"closed": 1})
    assert b.counters.ends == {"left": 1}


async def test_both_close_at_once() -> None:
    async with linked(SMALL) as (a, b):
        a.link.send(b"from a")
        a.link.close("enough")
        b.link.send(b"from b")
        b.link.close("enough")
        await a.over.wait()
        await b.over.wait()
    assert (a.got, b.got) == ([b"from b"], [b"from a"])
    assert a.link.why == b.link.why == LinkEnd(EndCode.CLOSED, "enough")


async def test_closing_takes_no_longer_than_it_may(autojump_clock: MockClock) -> None:
    end = make_end(Stuck(), "a", "b", SMALL)
    end.link.send(b"x")
    end.link.close("enough")
    began = trio.current_time()
    await end.link.run(end.got.append)
    assert trio.current_time() - began == pytest.approx(2)
    assert end.link.why == LinkEnd(EndCode.CLOSED, "enough")


async def test_the_last_word_comes_last() -> None:
    end = make_end(stream := Recording(), "a", "b", SMALL)
    for _ in range(3):
        end.link.send(b"x" * 900)
    end.link.close("enough")
    stream.send_in.send_nowait(framed(b"still") + END)
    await end.link.run(end.got.append)
    assert b"".join(stream.writes) == framed(b"x" * 900) * 3 + END
    assert end.got == [b"still"]
    assert stream.closed


async def test_a_peer_that_dies() -> None:
    end = make_end(stream := Recording(), "a", "b")
    stream.send_in.send_nowait(framed(b"x") + b"\0\0")
    stream.send_in.close()
    await end.link.run(end.got.append)
    assert end.got == [b"x"]
    assert end.link.why == LinkEnd(EndCode.CUT, "b went away without a word")
    assert end.counters.ends == {"cut": 1}


async def test_a_stream_that_breaks() -> None:
    for broken in ("send_all", "receive_some"):
        end = make_end(stream := Recording(), "a", "b")

        async def fail(*_: object) -> bytes:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError

        setattr(stream, broken, fail)
        end.link.send(b"x")
        await end.link.run(end.got.append)
        assert end.link.why is not None
        assert end.link.why.code is EndCode.CUT


async def test_a_frame_too_long() -> None:
    end = make_end(stream := Recording(), "a", "b", SMALL)
    stream.send_in.send_nowait(framed(b"x") + framed(b"y" * 1_001) + framed(b"z"))
    await end.link.run(end.got.append)
    assert end.got == [b"x"]
    assert end.link.why == LinkEnd(EndCode.FRAME_TOO_LONG, "1001 bytes")
    assert str(end.link.why) == "frame_too_long: 1001 bytes"


async def test_abort_before_it_runs() -> None:
    end = make_end(stream := Recording(), "a", "b")
    stream.send_in.send_nowait(framed(b"x"))
    end.link.send(b"y")
    end.link.abort("not needed")
    assert end.link.ended
    await end.link.run(end.got.append)
    assert end.got == []
    assert stream.writes == []
    assert stream.closed
    assert end.link.why == LinkEnd(EndCode.ABORTED, "not needed")


async def test_abort_while_frames_are_handed_over() -> None:
    link = Link(stream := Recording(), agreement("a", "b"))
    got: list[bytes] = []

    def take(frame: bytes) -> None:
        got.append(frame)
        if len(got) == 2:
            link.abort()

    stream.send_in.send_nowait(framed(b"x") * 5)
    await link.run(take)
    assert got == [b"x"] * 2


async def test_a_cancelled_run_closes_the_stream() -> None:
    end = make_end(stream := Recording(), "a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stream.closed
    assert end.link.why == LinkEnd(EndCode.ABORTED, "its task was cancelled")
    assert end.counters.open == 0


async def test_a_bug_of_who_takes_comes_through() -> None:
    link = Link(stream := Recording(), agreement("a", "b"))

    def take(frame: bytes) -> None:
        raise RuntimeError("a bug")

    stream.send_in.send_nowait(framed(b"x") * 2)
    with pytest.raises(RuntimeError, match="a bug"):
        await link.run(take)
    assert stream.closed
    assert link.why == LinkEnd(EndCode.FAILED, "RuntimeError")


async def test_what_came_with_the_handshake_is_handed_over() -> None:
    stream = Recording()
    found = msgspec.structs.replace(agreement("a", "b"), early=framed(b"x") + framed(b"y")[:3])
    link, got = Link(stream, found), list[bytes]()
    stream.send_in.send_nowait(framed(b"y")[3:] + END)
    await link.run(got.append)
    assert got == [b"x", b"y"]
    assert link.peer.name == "b"
    assert link.lane == "data"
