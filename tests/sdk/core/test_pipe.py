"""A pipe without a network: frames in, requests out, by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushlane.core.pipe import PATH, Ask, Close, Pipe
from pushlane.core.queues import Answer
from pushlane.core.settings import Settings
from pushlane.wire import DEFAULTS, Limits
from pushlane.wire.errors import ConnectionLost

HELLO = b'{"op":"hello"}'
BEAT = {"op": "beat", "now": 1}
SECOND = 1_000


class PipeRig:
    """One pipe; requests wait in `asked` for their answer."""

    def __init__(self, limits: Limits = DEFAULTS, settings: Settings | None = None) -> None:
        self.now = 0.0
        self.pipe = Pipe(settings or Settings(), lambda: 0.5, lambda: limits)
        self.asked: list[Ask] = []

    def send(self, *frames: bytes) -> list[Any]:
        for frame in frames:
            self.pipe.send(frame)
        return self.flush()

    def flush(self, ms: float = 0) -> list[Any]:
        """The bodies of the requests to make now."""
        self.now += ms
        asks = self.pipe.asks(self.now)
        self.asked += asks
        for ask in asks:
            assert (ask.call.method, ask.call.target) == ("POST", PATH)
        return [msgspec.json.decode(ask.call.body) for ask in asks]  # type: ignore[arg-type]

    def answer(self, value: Any, *, status: int = 200, receive: bool = False) -> list[Any]:
        """Answer the send or the receive under way; what is to be asked then."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        self.pipe.answered(self._take(receive), Answer(status, body), self.now)
        return self.flush()

    def fail(self, *, receive: bool = False) -> list[Any]:
        self.pipe.failed(self._take(receive), ConnectionLost("cut"), self.now)
        return self.flush()

    def _take(self, receive: bool) -> Ask:
        (ask,) = (ask for ask in self.asked if ask.is_receive == receive)
        self.asked.remove(ask)
        return ask

    def frames(self) -> list[Any]:
        frames, self.pipe.frames = self.pipe.frames, []
        return [msgspec.json.decode(frame) for frame in frames]

    def open(self) -> None:
        self.send(HELLO)
        self.answer({"pipe": "P"})


@pytest.fixture
def rig() -> PipeRig:
    rig = PipeRig()
    rig.open()
    return rig


def receive(after: int, wait_ms: int = 20_000) -> dict[str, Any]:
    return {"pipe": "P", "after": after, "wait_ms": wait_ms}


def test_the_first_frame_opens_it_then_it_receives() -> None:
    rig = PipeRig()
    assert rig.flush() == []
    assert rig.send(HELLO) == [{"frames": [{"op": "hello"}]}]
    assert rig.send(b"1") == []
    assert rig.answer({"pipe": "P"}) == [{"pipe": "P", "n": 1, "frames": [1]}, receive(0)]
    assert rig.pipe.is_open
    assert [ask.timeout_ms for ask in rig.asked] == [30_000, 50_000]


def test_one_send_at_a_time_and_what_gathers_goes_together(rig: PipeRig) -> None:
    assert rig.send(b"1") == [{"pipe": "P", "n": 1, "frames": [1]}]
    assert rig.send(b"2", b"3") == []
    assert rig.answer({}) == [{"pipe": "P", "n": 2, "frames": [2, 3]}]
    assert rig.answer({}) == []


@pytest.mark.parametrize(
    ("limits", "counts"),
    [(DEFAULTS, [3, 1]), (Limits(frame_bytes=700_000, message_bytes=2_000), [2, 2])],
)
def test_a_request_is_bounded(limits: Limits, counts: list[int]) -> None:
    rig = PipeRig(limits)
    rig.open()
    big = b'"%s"' % (b"x" * 300_000)
    rig.send(b"0")
    rig.send(big, big, big, big)
    (first,) = rig.answer({})
    (second,) = rig.answer({})
    assert [len(first["frames"]), len(second["frames"])] == counts
    body = msgspec.json.encode(first)
    assert len(body) <= min(limits.frame_bytes, 2**20)


def test_all_but_the_first_request_name_the_pipe_in_a_header() -> None:
    rig = PipeRig()
    rig.open()
    assert [ask.call.headers for ask in rig.asked] == [(("Pushlane-Pipe", "P"),)]
    rig.send(HELLO)
    assert [ask.call.headers for ask in rig.asked] == [(("Pushlane-Pipe", "P"),)] * 2


def test_a_frame_that_is_larger_goes_alone(rig: PipeRig) -> None:
    rig.send(b"0")
    rig.send(b"1", b'"%s"' % (b"x" * 2_000_000), b"3")
    assert [len(rig.answer({})[0]["frames"]) for _ in range(3)] == [1, 1, 1]


def test_frames_come_byte_for_byte_and_in_order(rig: PipeRig) -> None:
    raw = b'{"op": "deliver",  "x": 1.0}'
    answer = b'{"n": 1, "frames": [%s, {"op":"beat","now":1}]}' % raw
    assert rig.answer(answer, receive=True) == [receive(1)]
    assert rig.pipe.frames == [raw, b'{"op":"beat","now":1}']


def test_a_send_that_broke_is_repeated_once(rig: PipeRig) -> None:
    rig.send(b"1")
    assert rig.send(b"2") == []
    assert rig.fail() == [{"pipe": "P", "n": 1, "frames": [1]}]
    assert rig.answer({}) == [{"pipe": "P", "n": 2, "frames": [2]}]
    assert rig.fail() == [{"pipe": "P", "n": 2, "frames": [2]}]
    assert rig.fail() == []
    assert isinstance(rig.pipe.fault, ConnectionLost)


def test_an_open_that_broke_is_not_repeated() -> None:
    rig = PipeRig()
    rig.send(HELLO)
    assert rig.fail() == []
    assert rig.pipe.is_over


def test_a_receive_that_broke_is_repeated_with_backoff(rig: PipeRig) -> None:
    assert rig.fail(receive=True) == []
    assert rig.pipe.wake_at(rig.now) == 50
    assert rig.flush(50) == [receive(0)]
    assert rig.pipe.wake_at(rig.now) is None
    assert rig.fail(receive=True) == []
    assert rig.flush(100) == [receive(0)]
    assert rig.fail(receive=True) == []
    assert isinstance(rig.pipe.fault, ConnectionLost)


def test_an_answer_between_makes_failures_forgotten(rig: PipeRig) -> None:
    for n in range(5):
        rig.fail(receive=True)
        rig.flush(50)
        rig.answer({"n": n + 1, "frames": [BEAT]}, receive=True)
    assert not rig.pipe.is_over
    assert len(rig.frames()) == 5


def test_a_receive_that_waited_before_it_broke_is_repeated_at_once(rig: PipeRig) -> None:
    for _ in range(5):
        rig.flush(SECOND)
        assert rig.fail(receive=True) == [receive(0)]
    assert not rig.pipe.is_over


def test_an_empty_answer_that_comes_too_soon_is_no_busy_loop(rig: PipeRig) -> None:
    empty = {"n": 0, "frames": []}
    rig.flush(10_000)
    assert rig.answer(empty, receive=True) == [receive(0)]
    rig.flush(9_999)
    assert rig.answer(empty, receive=True) == []
    assert rig.flush(50) == [receive(0)]
    for _ in range(10):  # but it is alive
        rig.answer(empty, receive=True)
        rig.flush(5_000)
    assert not rig.pipe.is_over


def test_the_wait_is_within_the_limits_of_both_sides() -> None:
    rig = PipeRig(Limits(wait_ms=5_000))
    rig.send(HELLO)
    assert rig.answer({"pipe": "P"}) == [receive(0, 5_000)]
    rig = PipeRig(settings=Settings(poll_wait_ms=100))
    rig.send(HELLO)
    assert rig.answer({"pipe": "P"}) == [receive(0, 100)]


def test_an_answer_out_of_order_loses_the_link(rig: PipeRig) -> None:
    rig.answer({"n": 7, "frames": [BEAT]}, receive=True)
    assert isinstance(rig.pipe.fault, ConnectionLost)
    assert rig.frames() == []


def test_the_server_closes_after_its_last_frames(rig: PipeRig) -> None:
    close = {"code": 1008, "reason": "unauthorized"}
    assert rig.answer({"n": 1, "frames": [BEAT], "close": close}, receive=True) == []
    assert rig.frames() == [BEAT]
    assert rig.pipe.close == Close(1008, "unauthorized")
    assert rig.send(b"1") == []


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (404, "not_found"), (503, "unavailable")]
)
def test_an_open_that_is_refused_fails_with_that_error(status: int, code: str) -> None:
    rig = PipeRig()
    rig.send(HELLO)
    rig.answer({"error": {"code": code, "message": "no", "retry_ms": 7}}, status=status)
    assert rig.pipe.fault is not None
    assert (rig.pipe.fault.code, rig.pipe.fault.retry_ms) == (code, 7)


@pytest.mark.parametrize("receives", [False, True])
@pytest.mark.parametrize("status", [401, 404, 409, 413, 502])
def test_later_any_refusal_only_loses_the_link(rig: PipeRig, status: int, receives: bool) -> None:
    rig.send(b"1")
    rig.answer(b"<html>", status=status, receive=receives)
    assert isinstance(rig.pipe.fault, ConnectionLost)
    assert rig.pipe.is_over


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b"{}", b'{"pipe": 7}', b""])
def test_something_else_than_a_server_is_not_there_yet(page: bytes) -> None:
    rig = PipeRig()
    rig.send(HELLO)
    rig.answer(page)
    assert rig.pipe.fault is not None
    assert rig.pipe.fault.code == "unavailable"


def test_the_close_takes_along_what_is_to_be_sent(rig: PipeRig) -> None:
    rig.pipe.send(b"1")
    rig.pipe.leave(1000)
    assert rig.flush() == [{"pipe": "P", "n": 1, "frames": [1], "close": 1000}]
    assert rig.answer({}) == []
    assert rig.pipe.has_left


def test_the_close_waits_for_the_send_under_way(rig: PipeRig) -> None:
    rig.send(b"1")
    rig.pipe.leave(1001)
    assert rig.flush() == []
    assert rig.fail() == [{"pipe": "P", "n": 1, "frames": [1]}]
    assert rig.answer({}) == [{"pipe": "P", "close": 1001}]
    assert not rig.pipe.has_left
    rig.answer({})
    assert rig.pipe.has_left


def test_nothing_is_received_after_the_close(rig: PipeRig) -> None:
    rig.pipe.leave(1001)
    rig.flush()
    assert rig.answer({"n": 1, "frames": [BEAT]}, receive=True) == []


def test_what_was_never_opened_has_nothing_to_close() -> None:
    rig = PipeRig()
    rig.pipe.leave(1000)
    assert rig.flush() == []
