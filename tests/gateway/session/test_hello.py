"""The beginning of a session: hello, welcome, and those who are not welcome."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.codec import JSON, MSGPACK, Codec
from pushlane.wire.frames import (
    Beat,
    ErrorFrame,
    Goaway,
    Hello,
    Publish,
    Published,
    Resume,
    Subscribe,
    Welcome,
)
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.auth.rule import Rule
from tests.dispatcher.rig import START
from tests.gateway.session.rig import blocked, known, message, rig

ANN = Identity("ann", "default", (Rule("admin", "*"),))
BOB = Identity("bob", "other", (Rule("admin", "*"),))


async def test_welcome_says_what_a_client_must_know() -> None:
    limits = Limits(batch=7, resume_ms=1_234, heartbeat_ms=5_000)
    async with rig(limits=limits) as it:
        welcome = await it.connect().hello(client="c", producer="p")
    assert welcome.resumed is False
    assert welcome.limits["batch"] == 7
    assert set(welcome.limits) == set(DEFAULTS.wire())
    assert (welcome.resume_ms, welcome.heartbeat_ms) == (1_234, 5_000)
    assert welcome.now == START
    assert len(welcome.session) >= 20
    assert welcome.lost == {}


async def test_sessions_have_names_of_their_own() -> None:
    async with rig() as it:
        names = {(await it.connect().hello()).session for _ in range(10)}
        assert len(names) == len(it.sessions) == 10


async def test_frames_may_follow_hello_without_waiting() -> None:
    async with rig() as it:
        client = it.connect()
        client.say(Hello(), Publish(1, "q", [message()]))
        assert isinstance(await client.socket.hear(), Welcome)
        assert isinstance(await client.socket.hear(), Published)


async def test_no_hello_in_time() -> None:
    async with rig() as it:
        client = it.connect()
        error = await client.error()
        assert trio.current_time() == pytest.approx(5)
        assert error.code == "unavailable"
        assert await client.socket.until_closed() == (1008, "unavailable")
        await client.gone.wait()
        assert it.limit("hello_ms") == 1
        assert len(it.sessions) == 0


async def test_a_hello_in_time_is_never_late() -> None:
    async with rig() as it:
        client = it.connect()
        await trio.sleep(4.9)
        await client.hello()
        await client.silence(10)


async def test_another_frame_first() -> None:
    async with rig() as it:
        client = it.connect()
        client.say(Publish(1, "q", [message()]), Hello())
        error = await client.error()
        assert (error.code, error.message) == ("bad_request", "the first frame must be hello")
        assert await client.socket.until_closed() == (1008, "bad_request")
        await client.gone.wait()
        assert client.socket.unread == []
        assert len(it.sessions) == 0


async def test_a_second_hello_is_refused_and_the_session_lives() -> None:
    async with rig() as it:
        client = await it.client()
        client.say(Hello())
        error = await client.error()
        assert (error.code, error.request, error.id) == ("bad_request", "hello", None)
        await client.publish("q", b"1")


@pytest.mark.parametrize(
    "hello",
    [
        b'{"op":"hello","token":5}',
        b'{"op":"hello","client":""}',
        b'{"op":"hello","token":"%s"}' % (b"x" * 9_000),
        b'{"op":"hello","resume":{"session":"s","held":{"x":[]}}}',
        b'{"op":"hello","resume":{"session":"s","held":{"1":["no receipt"]}}}',
    ],
)
async def test_a_bad_hello(hello: bytes) -> None:
    async with rig() as it:
        client = it.connect()
        client.say(hello)
        assert (await client.error()).code == "bad_request"
        assert await client.socket.until_closed() == (1008, "bad_request")
        await client.gone.wait()


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])
async def test_bytes_that_are_no_frame_close_with_1002(codec: Codec) -> None:
    async with rig() as it:
        for welcomed in (False, True):
            client = it.connect(codec)
            if welcomed:
                await client.hello()
            client.say(b"\xc1" if codec is MSGPACK else b"{nonsense", Hello())
            assert (await client.error()).code == "bad_request"
            assert await client.socket.until_closed() == (1002, "bad_request")
            await client.gone.wait()
            assert client.socket.unread == []


# Who it is


async def test_the_header_says_who_it_is_unless_hello_does() -> None:
    async with rig(authenticate=known(ann=ANN, bob=BOB)) as it:
        by_header = it.connect(authorization="Bearer bob")
        await by_header.hello()
        await by_header.publish("q", b"1")
        by_hello = it.connect(authorization="Bearer bob")
        await by_hello.hello(token="ann")
        await by_hello.publish("q2", b"1")
        assert [row.name for row in await it.dispatcher.list("other")] == ["q"]
        assert [row.name for row in await it.dispatcher.list("default")] == ["q2"]


@pytest.mark.parametrize(
    ("token", "header"),
    [(None, None), ("eve", None), (None, "Bearer eve"), ("eve", "Bearer ann"), (None, "Basic ann")],
)
async def test_bad_credentials(token: str | None, header: str | None) -> None:
    async with rig(authenticate=known(ann=ANN)) as it:
        client = it.connect(authorization=header)
        client.say(Hello(token=token), Subscribe(1, "q", 1))
        assert (await client.error()).code == "unauthorized"
        assert await client.socket.until_closed() == (1008, "unauthorized")
        await client.gone.wait()
        assert client.socket.unread == []
        assert len(it.sessions) == 0


async def test_a_token_that_ends_takes_the_session_along() -> None:
    soon = Identity("ann", "default", ANN.rules, expires_at=START + 20_000)
    async with rig(authenticate=known(ann=soon)) as it:
        client = await it.client(token="ann")
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (first,) = await client.deliver()
        assert await client.socket.hear() == Goaway("token_expired", 750)
        assert trio.current_time() == pytest.approx(20)
        client.say(Publish(50, "q", [message()]))
        assert (await client.error()).code == "unavailable"
        assert first.receipt is not None
        assert (await client.ack(sub, first.receipt)).lease_lost == []
        assert await client.socket.until_closed() == (1001, "token_expired")
        assert trio.current_time() == pytest.approx(25)
        assert it.metrics.goaways.counts == {"token_expired": 1}


async def test_a_revoked_key_ends_its_sessions_at_once() -> None:
    revoked: set[str] = set()
    async with rig(
        authenticate=known(ann=ANN, bob=BOB), still_valid=lambda who: who.name not in revoked
    ) as it:
        ann, bob = await it.client(token="ann"), await it.client(token="bob")
        it.connect()
        await blocked()
        revoked.add("ann")
        it.sessions.keys_changed()
        assert (await ann.error()).code == "unauthorized"
        assert await ann.socket.until_closed() == (1008, "unauthorized")
        await bob.publish("q", b"1")


async def test_too_many_sessions() -> None:
    async with rig(sessions=1) as it:
        await it.client()
        client = it.connect()
        client.say(Hello())
        assert await client.socket.hear() == Goaway("overload", 750)
        assert await client.socket.until_closed() == (1013, "overload")
        assert it.limit("sessions") == 1


# Signs of life


async def test_beats_only_after_silence() -> None:
    async with rig() as it:
        client = await it.client()
        await trio.sleep(20)
        await client.publish("q", b"1")
        beat = await client.socket.hear_a(Beat)
        assert trio.current_time() == pytest.approx(45)
        assert beat.now == START + 45_000
        await client.socket.hear_a(Beat)
        assert trio.current_time() == pytest.approx(70)


async def test_timers_of_a_session_end_with_its_connection() -> None:
    async with rig(limits=Limits(resume_ms=1_000)) as it:
        client = await it.client()
        await client.drop()
        await trio.sleep(100)
        assert len(it.sessions.context.timers) == 0
        assert len(it.sessions) == 0


async def test_a_failed_login_is_logged_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(authenticate=known()) as it:
        client = it.connect()
        client.say(Hello(token="s3cret"))
        assert (await client.socket.hear_a(ErrorFrame)).code == "unauthorized"
        await client.gone.wait()
    assert "login of" in caplog.text
    assert "s3cret" not in caplog.text


async def test_who_it_is_comes_before_what_it_holds() -> None:
    held = {"1": ["p.1"] * 1_001, "2": ["p.2"] * 1_001}
    async with rig(authenticate=known(ann=ANN)) as it:
        stranger = it.connect()
        stranger.say(Hello("eve", resume=Resume("s", held)))
        assert (await stranger.error()).code == "unauthorized"
        assert stranger.socket.admitted == []
        ann = it.connect()
        ann.say(Hello("ann", resume=Resume("s", held)))
        assert (await ann.error()).code == "bad_request"
        assert ann.socket.admitted == []


async def test_a_socket_hears_who_is_there() -> None:
    async with rig(authenticate=known(ann=ANN, any=ANONYMOUS)) as it:
        by_hello = it.connect()
        await by_hello.hello(token="ann")
        assert by_hello.socket.admitted == [True]
        anybody = it.connect()
        await anybody.hello(token="any")
        assert anybody.socket.admitted == [False]
        by_header = it.connect(authorization="Bearer ann")
        await blocked()
        assert by_header.socket.admitted == [True]
        nobody = it.connect(authorization="Bearer eve")
        await blocked()
        assert nobody.socket.admitted == []
