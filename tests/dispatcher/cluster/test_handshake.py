"""Both sides of a handshake, in memory: what they agree on, and every way in which they don't."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair

from pushlane_dispatcher.cluster.failures import LinkFailed, LinkRefused, LinkUnreachable, Refusal
from pushlane_dispatcher.cluster.links.framing import framed
from pushlane_dispatcher.cluster.links.greeting import (
    BUSY_WORD,
    DIALLER,
    OK,
    PREFACE,
    Agreement,
    Proof,
    Verdict,
    encode,
    prove,
)
from pushlane_dispatcher.cluster.links.handshake import greet, welcome
from pushlane_dispatcher.cluster.links.talk import HTTP_ANSWER
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings
from tests.dispatcher.cluster.rig import KEY, WALL, me, shake

A, B = me("a"), me("b")
OTHER_KEY = b"a key of other people's nodes"


def codes(*failures: object) -> list[str]:
    return [found.code.value for found in failures if isinstance(found, LinkFailed)]


async def test_two_nodes_agree(autojump_clock: MockClock) -> None:
    found = await shake(A, B, lane="rest", expects="process-b")
    assert isinstance(found.dialler, Agreement)
    assert isinstance(found.listener, Agreement)
    assert found.dialler.peer.name == "b"
    assert found.listener.peer.name == "a"
    assert found.listener.peer.expects == "process-b"
    assert found.dialler.lane == found.listener.lane == "rest"
    assert found.dialler.version == found.listener.version == 1
    assert not found.dialler.clocks_apart
    assert trio.current_time() == 0


async def test_next_and_previous_version_understand_each_other() -> None:
    for dialler, listener in (((1, 2), (2, 3)), ((2, 3), (1, 2))):
        found = await shake(me("a", versions=dialler), me("b", versions=listener))
        assert isinstance(found.dialler, Agreement)
        assert isinstance(found.listener, Agreement)
        assert found.dialler.version == found.listener.version == 2


async def test_clocks_far_apart_are_told() -> None:
    found = await shake(A, me("b", wall=WALL + 3_600_000))
    assert isinstance(found.dialler, Agreement)
    assert isinstance(found.listener, Agreement)
    assert (found.dialler.ahead_ms, found.listener.ahead_ms) == (3_600_000, -3_600_000)
    assert found.dialler.clocks_apart
    assert found.listener.clocks_apart


async def test_refusals_reach_both_sides(autojump_clock: MockClock) -> None:
    cases = {
        "other_cluster": await shake(A, me("b", cluster="staging")),
        "old_version": await shake(A, me("b", versions=(2, 3))),
        "new_version": await shake(me("a", versions=(2, 3)), B),
        "wrong_key": await shake(A, B, keys=(KEY, OTHER_KEY)),
        "other_process": await shake(A, B, expects="process-c"),
        "itself": await shake(A, A, expects="process-b"),
    }
    for code, found in cases.items():
        assert codes(found.dialler, found.listener) == [code, code]
    unkeyed = await shake(A, B, keys=(b"", KEY))
    assert codes(unkeyed.dialler, unkeyed.listener) == ["wrong_key", "wrong_key"]


async def test_without_a_key_certificates_have_to_do() -> None:
    found = await shake(A, B, keys=(b"", b""))
    assert isinstance(found.dialler, Agreement)


async def test_another_process_proves_who_it_is() -> None:
    found = await shake(A, B, expects="process-c")
    assert isinstance(found.dialler, LinkRefused)
    assert found.dialler.answered is not None
    assert found.dialler.answered.process == "process-b"
    assert str(found.dialler) == "other_process: b runs as process-b, a expected process-c"
    itself = await shake(A, A, expects="process-c")
    assert isinstance(itself.dialler, LinkRefused)
    assert itself.dialler.answered is not None
    unproved = await shake(A, B, expects="process-c", keys=(KEY, OTHER_KEY))
    assert isinstance(unproved.dialler, LinkRefused)
    assert unproved.dialler.answered is None


# A listening side that the test plays

Play = Callable[[trio.abc.Stream, bytes], Awaitable[None]]


async def greeted_by(play: Play) -> LinkFailed:
    """What the dialler makes of a listener who plays this; it gets the dialler's greeting."""
    ours, theirs = memory_stream_pair()
    failures: list[LinkFailed] = []

    async def dial() -> None:
        try:
            await greet(ours, A, lane="data", expects="process-c", key=KEY)
        except LinkFailed as failure:
            failures.append(failure)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        data = bytes(await theirs.receive_some(4096))
        assert data.startswith(PREFACE)
        await play(theirs, data[len(PREFACE) + 4 :])
        await theirs.send_eof()
    return failures[0]


@pytest.mark.parametrize("code", ["ok", "other_process", "itself"])
async def test_a_listener_without_the_key_proves_nothing(code: str) -> None:
    """Least of all that another process is gone."""

    async def play(stream: trio.abc.Stream, heard: bytes) -> None:
        sent = encode(B.greeting(1 << 23))
        verdict = Verdict(code, prove(OTHER_KEY, code, heard, sent))
        await stream.send_all(framed(sent) + framed(encode(verdict)))

    failure = await greeted_by(play)
    assert isinstance(failure, LinkRefused)
    assert failure.code is Refusal.WRONG_KEY
    assert failure.answered is None


async def test_a_proof_of_one_verdict_is_none_of_another() -> None:
    async def play(stream: trio.abc.Stream, heard: bytes) -> None:
        sent = encode(B.greeting(1 << 23))
        verdict = Verdict("other_process", prove(KEY, OK, heard, sent))
        await stream.send_all(framed(sent) + framed(encode(verdict)))

    assert codes(await greeted_by(play)) == ["wrong_key"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (BUSY_WORD, "busy"),
        (framed(encode(Verdict("purple"))), "other"),
        (framed(encode(Proof(b""))), "not_a_link"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not_a_link"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "not_a_link"),
        (b"\0\0\xff\xff", "not_a_link"),
        (b"", "lost"),
        (b"\0\0\0", "lost"),
    ],
)
async def test_answers_of_others(data: bytes, code: str) -> None:
    async def play(stream: trio.abc.Stream, _: bytes) -> None:
        await stream.send_all(data)

    assert codes(await greeted_by(play)) == [code]


# A dialling side that the test plays


async def welcomed(
    data: bytes, settings: ClusterSettings = DEFAULT_SETTINGS, *, leaves: bool = True
) -> tuple[Agreement | LinkFailed, bytes]:
    """What the listener makes of somebody who sends this, and what it answers."""
    ours, theirs = memory_stream_pair()
    await ours.send_all(data)
    if leaves:
        await ours.send_eof()
    found: Agreement | LinkFailed
    try:
        found = await welcome(theirs, B, key=KEY, settings=settings)
    except LinkFailed as failure:
        found = failure
    await theirs.aclose()
    return found, b"".join([bytes(part) async for part in ours])


HEARD = encode(A.greeting(1 << 23, "data"))
SENT = encode(B.greeting(DEFAULT_SETTINGS.frame_bytes))
WHOLE = PREFACE + framed(HEARD) + framed(encode(Proof(prove(KEY, DIALLER, HEARD, SENT)))) + b"more"


async def test_a_dialler_in_one_piece() -> None:
    found, answer = await welcomed(WHOLE)
    assert isinstance(found, Agreement)
    assert found.early == b"more"
    verdict = Verdict(OK, prove(KEY, OK, HEARD, SENT))
    assert answer == framed(SENT) + framed(encode(verdict))


async def test_a_dialler_cut_at_every_byte() -> None:
    for cut in range(len(WHOLE) - 4):
        found, answer = await welcomed(WHOLE[:cut])
        assert codes(found) == ["lost"]
        assert answer in (b"", framed(SENT))


async def test_a_listener_cut_at_every_byte() -> None:
    answer = framed(SENT) + framed(encode(Verdict(OK, prove(KEY, OK, HEARD, SENT))))

    for cut in range(len(answer)):

        async def play(stream: trio.abc.Stream, _: bytes, cut: int = cut) -> None:
            await stream.send_all(answer[:cut])

        assert codes(await greeted_by(play)) == ["lost"]


async def test_one_byte_at_a_time(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()

    async def trickle() -> None:
        for at in range(len(WHOLE)):
            await ours.send_all(WHOLE[at : at + 1])
            await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        assert isinstance(await welcome(theirs, B, key=KEY), Agreement)


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"POST /v1/ws HTTP/1.1", b"PUSH / x"])
async def test_http_is_told_that_this_is_no_place_for_it(request_line: bytes) -> None:
    found, answer = await welcomed(request_line + b"\r\nHost: x\r\n\r\n")
    assert codes(found) == ["not_a_link"]
    assert answer == HTTP_ANSWER
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 9])
async def test_other_strangers_get_no_answer(data: bytes) -> None:
    found, answer = await welcomed(data)
    assert codes(found) == ["not_a_link"]
    assert answer == b""


async def test_garbage_behind_the_preface() -> None:
    for data in (b"\0\0\0\x05hello", b"\xff" * 9, framed(encode(Verdict(OK)))):
        found, answer = await welcomed(PREFACE + data)
        assert codes(found) == ["not_a_link"]
        assert answer == framed(encode(Verdict("not_a_link")))


async def test_a_proof_cannot_be_used_again() -> None:
    """Neither the listener's own, nor the dialler's of another handshake."""
    for says, dialler, listener in ((OK, HEARD, SENT), (DIALLER, SENT, HEARD)):
        proof = framed(encode(Proof(prove(KEY, says, dialler, listener))))
        found, _ = await welcomed(PREFACE + framed(HEARD) + proof)
        assert codes(found) == ["wrong_key"]


async def test_a_stranger_gets_nothing_to_try_keys_on() -> None:
    """No proof of the listener's before the dialler's own."""
    wrong = framed(encode(Proof(prove(OTHER_KEY, DIALLER, HEARD, SENT))))
    _, answer = await welcomed(PREFACE + framed(HEARD) + wrong)
    assert answer == framed(SENT) + framed(encode(Verdict("wrong_key")))


class Counting(trio.abc.Stream):
    """An endless sender, a byte or as much as is asked for at a time, that never reads."""

    def __init__(self, begin: bytes, then: bytes) -> None:
        self.begin, self.then = begin, then
        self.read = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        assert max_bytes is not None
        data, self.begin = self.begin[:max_bytes], self.begin[max_bytes:]
        data = data or self.then * max_bytes
        self.read += len(data)
        return data

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("begin", [b"", b"GET ", PREFACE, PREFACE + b"\0\0\x0f\xff", WHOLE[:150]])
async def test_a_stranger_is_not_read_for_ever(begin: bytes) -> None:
    for then in (b"\0", b"x"):
        stream = Counting(begin, then)
        with pytest.raises(LinkRefused):
            await welcome(stream, B, key=KEY)
        assert stream.read <= DEFAULT_SETTINGS.stranger_bytes


@pytest.mark.parametrize("begin", [b"", b"GET ", b"GET / HTTP/1.1\r\n", PREFACE, WHOLE[:150]])
async def test_a_stranger_that_stays(begin: bytes, autojump_clock: MockClock) -> None:
    found, _ = await welcomed(begin, leaves=False)
    refused = begin.startswith(b"GET")
    assert codes(found) == ["not_a_link" if refused else "timed_out"]
    assert trio.current_time() == pytest.approx(1 if refused else 5)


class Unread(Counting):
    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()


async def test_a_peer_that_reads_nothing(autojump_clock: MockClock) -> None:
    with pytest.raises(LinkUnreachable, match="timed_out"):
        await welcome(Unread(WHOLE, b""), B, key=KEY)
    with pytest.raises(LinkUnreachable, match="timed_out"):
        await greet(Unread(b"", b""), A, lane="data", key=KEY)
    with pytest.raises(LinkRefused, match="not_a_link"):
        await welcome(Unread(b"GET / HTTP/1.1", b""), B, key=KEY)


@settings(max_examples=200)
@given(st.integers(0, len(WHOLE) - 5), st.binary(max_size=300))
def test_garbage_at_any_place_of_the_dialler(at: int, data: bytes) -> None:
    async def play() -> None:
        found, answer = await welcomed(WHOLE[:at] + data)
        if WHOLE.startswith(WHOLE[:at] + data) or (WHOLE[:at] + data).startswith(WHOLE[:-4]):
            return
        assert isinstance(found, LinkFailed)
        assert len(answer) < 1_000

    trio.run(play)


@settings(max_examples=200)
@given(st.integers(0, 400), st.binary(max_size=300))
def test_garbage_at_any_place_of_the_listener(at: int, data: bytes) -> None:
    answer = framed(SENT) + framed(encode(Verdict(OK, prove(KEY, OK, HEARD, SENT))))

    async def play(stream: trio.abc.Stream, _: bytes) -> None:
        await stream.send_all(answer[:at] + data)

    trio.run(greeted_by, play)  # which fails unless it ends in a LinkFailed
