"""The pipe itself, between a session that receives and requests that put and fetch."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pushlane.wire.errors import Conflict, NotFound
from pushlane_gateway.pipe.pipe import Pipe
from pushlane_gateway.session.link import Link, SocketClosed

FOREVER = trio.sleep_forever


def make() -> Pipe:
    return Pipe("p", [b"hello"], answer_bytes=1_000, most_bytes=100)


async def end_of(pipe: Pipe) -> SocketClosed:
    with pytest.raises(SocketClosed) as closed:
        await pipe.receive()
    return closed.value


async def test_it_is_a_link() -> None:
    link: Link = make()
    link.hurry()
    assert await link.receive() == [b"hello"]


async def test_a_put_returns_when_the_session_asks_for_more() -> None:
    pipe = make()
    await pipe.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipe.put, 1, [b"1"], FOREVER)
        assert await pipe.receive() == [b"1"]
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
        pipe.close(1001, "drain")
        assert (await end_of(pipe)).code == 1001
        pipe.finish()
    await pipe.put(2, [b"2"], FOREVER)  # closed, and not heard yet: it doesn't count


async def test_frames_come_before_the_clients_close() -> None:
    pipe = make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipe.leave, 1000, 1, [b"1"], FOREVER)
        await wait_all_tasks_blocked()
        assert [await pipe.receive(), await pipe.receive()] == [[b"hello"], [b"1"]]
        pipe.send(b'"answer"')
        end = await end_of(pipe)
        assert (end.code, end.clean) == (1000, True)
        pipe.finish()
    answer = await pipe.fetch(0, 0, FOREVER)
    assert answer.body == b'{"n":1,"frames":["answer"],"close":{"code":1000,"reason":""}}'


async def test_the_servers_close_comes_before_frames() -> None:
    pipe = make()
    pipe.close(4001, "taken_over")
    pipe.send(b"late")
    end = await end_of(pipe)
    assert (end.code, end.reason, end.clean) == (4001, "taken_over", False)
    assert pipe.outbox_bytes == 0
    assert pipe.is_untold


async def test_a_cut_pipe_is_gone_for_everybody() -> None:
    pipe = make()
    await pipe.receive()
    with pytest.raises(Conflict):
        await pipe.put(5, [b"5"], FOREVER)
    assert (await end_of(pipe)).code == 1006
    assert pipe.is_forgotten
    with pytest.raises(NotFound):
        await pipe.fetch(0, 0, FOREVER)
    with pytest.raises(NotFound):
        await pipe.put(1, [b"1"], FOREVER)


async def test_too_much_in_the_outbox_cuts_it() -> None:
    pipe = make()
    pipe.send(b"x" * 100)
    assert pipe.outbox_bytes == 100
    pipe.send(b"x")
    assert pipe.overflowed
    assert (pipe.outbox_bytes, pipe.is_forgotten) == (0, True)


async def test_a_client_that_leaves_holds_no_drain() -> None:
    pipe = make()
    pipe.send(b"x" * 50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pipe.leave, 1000, None, [], FOREVER)
        with pytest.raises(SocketClosed):
            await pipe.drain(10)
        pipe.finish()


async def test_silence_is_measured_between_receives() -> None:
    pipe = make()
    pipe.begin_receive()
    pipe.begin_receive()
    pipe.end_receive()
    assert pipe.quiet_since is None
    await trio.sleep(5)
    pipe.end_receive()
    assert pipe.quiet_since == trio.current_time()
