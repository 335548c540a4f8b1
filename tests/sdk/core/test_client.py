"""The client's core over connections of both kinds: what the scenarios don't show."""

from __future__ import annotations

import pytest

from pushlane.core import effects as fx
from pushlane.core.client import ClientCore
from pushlane.core.effects import AnyEffect
from pushlane.wire import DEFAULTS, JSON, MSGPACK, frames
from pushlane.wire.codec import Codec
from pushlane.wire.errors import BadRequest, Forbidden, NotFound, PushlaneError


def auto() -> ClientCore:
    core = ClientCore(producer="p", random=lambda: 0.5, codec=MSGPACK, transport="auto")
    core.start(0, "start")
    return core


def state(core: ClientCore) -> str:
    return core.state


def drain(core: ClientCore) -> list[AnyEffect]:
    effects = core.effects.copy()
    core.effects.clear()
    return effects


def welcome(
    core: ClientCore, link: int, codec: Codec, now: float, *, resumed: bool = False
) -> None:
    core.connected(link, None, now)
    frame = frames.Welcome("s", "a", "x", resumed, 0, 30_000, 25_000, DEFAULTS.wire())
    core.received(link, [codec.encode(frame)], now)


def sent(core: ClientCore, codec: Codec) -> list[frames.ClientFrame]:
    return [codec.decode_client(e.data) for e in drain(core) if isinstance(e, fx.Send)]


def test_pipes_carry_json_and_websockets_what_was_wished_for() -> None:
    core = auto()
    core.lost(1, 1, refused=400)
    welcome(core, 2, JSON, 2)
    assert state(core) == "polling"
    assert isinstance(sent(core, JSON)[0], frames.Hello)
    core.probed(2, 3, is_good=True)
    core.received(2, [b"what is still on its way"], 3)
    welcome(core, 3, MSGPACK, 4, resumed=True)
    assert state(core) == "open"
    hello = sent(core, MSGPACK)[0]
    assert isinstance(hello, frames.Hello)
    assert hello.resume == frames.Resume("s", {})


def test_a_refused_upgrade_may_pass_where_one_worked() -> None:
    core = auto()
    welcome(core, 1, MSGPACK, 1)
    core.lost(1, 100)
    for link in (2, 3):
        core.tick(core.wake_at() or 0)
        core.lost(link, 200, error=BadRequest("HTTP 400"), refused=400)
        assert state(core) == "connecting"
    core.tick(core.wake_at() or 0)
    drain(core)
    core.lost(4, 900, error=BadRequest("HTTP 400"), refused=400)
    assert drain(core) == [fx.Dial(5, "poll")]


def test_credentials_that_are_refused_in_place_of_an_upgrade_are_final() -> None:
    core = auto()
    core.lost(1, 1, error=Forbidden("HTTP 403"), refused=403)
    assert state(core) == "closed"
    assert core.error is not None
    assert core.error.code == "forbidden"


def _cut_to_polling() -> ClientCore:
    core = auto()
    for link in (1, 2, 3):
        welcome(core, link, MSGPACK, link, resumed=link > 1)
        core.lost(link, link)
        core.tick(10_000)
    core.connected(4, None, 10_000)
    drain(core)
    return core


def test_a_pipe_that_can_not_be_had_is_a_websocket_again() -> None:
    core = _cut_to_polling()
    core.lost(4, 10_001, error=NotFound("an older server"))
    assert drain(core) == [fx.Hangup(4, 1001), fx.Dial(5, "ws")]


@pytest.mark.parametrize("error", [NotFound("no"), None])
def test_a_pipe_that_was_open_and_is_taken_over_is_final(error: PushlaneError | None) -> None:
    core = _cut_to_polling()
    frame = frames.Welcome("s", "a", "x", True, 0, 30_000, 25_000, DEFAULTS.wire())
    core.received(4, [JSON.encode(frame)], 10_001)
    assert state(core) == "polling"
    core.lost(4, 10_002, code=4001, reason="taken_over", error=error)
    assert state(core) == "closed"
