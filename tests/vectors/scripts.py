"""What happens to a client, told as scripts; `scenarios.py` finds out what the client does then.

A step is (time, event, arguments). Frames are given as the objects of the protocol.
"""

from __future__ import annotations

from typing import Any

Step = tuple[int, str, dict[str, Any]]


def welcome(
    session: str = "s-1", *, resumed: bool = False, lost: dict[str, list[str]] | None = None,
    **limits: int,
) -> dict[str, Any]:  # fmt: skip
    frame: dict[str, Any] = {
        "op": "welcome", "session": session, "node": "a", "server": "vector", "resumed": resumed,
        "now": 0, "resume_ms": 30000, "heartbeat_ms": 25000, "limits": limits,
    }  # fmt: skip
    if lost:
        frame["lost"] = lost
    return frame


def deliver(sub: int, *numbers: int, lease_ms: int = 30000) -> dict[str, Any]:
    messages = [
        {
            "id": f"m-{n}", "receipt": f"P.{n}", "body": n, "attempt": 1, "fence": 1,
            "published_at": 0, "lease_ms": lease_ms,
        }
        for n in numbers
    ]  # fmt: skip
    return {"op": "deliver", "sub": sub, "messages": messages}


def opened(link: int = 1, at: int = 0, **kwargs: Any) -> list[Step]:
    """A connection that is welcomed."""
    return [
        (at, "connected", {"link": link, "token": None}),
        (at, "received", {"link": link, "frames": [welcome(**kwargs)]}),
        (at, "flush", {}),
    ]


START: Step = (0, "start", {"ticket": "start"})
AUTO: Step = (0, "start", {"ticket": "start", "transport": "auto"})
POLL: Step = (0, "start", {"ticket": "start", "transport": "poll"})


def publish(at: int, ticket: str, queue: str = "q", **message: Any) -> Step:
    return (at, "publish", {"ticket": ticket, "queue": queue, "message": message or {"body": 1}})


def received(at: int, *frames: dict[str, Any], link: int = 1) -> Step:
    return (at, "received", {"link": link, "frames": list(frames)})


def lost(
    at: int, link: int = 1, code: int = 1006, reason: str = "", refused: int | None = None
) -> Step:
    arguments: dict[str, Any] = {"link": link, "code": code, "reason": reason}
    return (at, "lost", arguments if refused is None else {**arguments, "refused": refused})


def probed(at: int, link: int, *, is_good: bool = True) -> Step:
    return (at, "probed", {"link": link, "is_good": is_good})


def flush(at: int) -> Step:
    return (at, "flush", {})


def tick(at: int) -> Step:
    return (at, "tick", {})


def subscribed(at: int = 0, link: int = 1) -> list[Step]:
    """A live subscription with three messages."""
    return [
        (at, "subscribe", {"ticket": "sub", "subscription": "S", "queue": "q", "credit": 10}),
        flush(at),
        received(at, {"op": "subscribed", "id": 1, "sub": 7}, deliver(7, 1, 2, 3), link=link),
    ]


def take(at: int, *, kept: bool = True) -> Step:
    return (at, "take", {"subscription": "S", "keep": kept})


def settle(at: int, op: str, message: str, ticket: str, **options: Any) -> Step:
    return (at, op, {"message": message, "ticket": ticket, **options})


def close(at: int) -> Step:
    return (at, "close", {"timeout_ms": 30000, "ticket": "close"})


SCRIPTS: dict[str, list[Step]] = {
    "hello and welcome": [START, *opened()],
    "publishes of a tick share a frame, one for each queue": [
        START, *opened(), publish(0, "a"), publish(0, "b", "other"),
        publish(0, "c", key="k", body=2), flush(0),
        received(5, {"op": "published", "id": 1, "ids": ["m-1", "m-3"]},
                 {"op": "published", "id": 2, "ids": ["m-2"]}),
    ],
    "what was published before the connection goes out after welcome": [
        START, publish(0, "a"), flush(0), *opened(at=20),
    ],
    "a batch is limited by the server's welcome": [
        START, *opened(batch=2), *[publish(0, f"t{n}") for n in range(5)], flush(0),
    ],
    "one failed message of a frame fails alone": [
        START, *opened(), publish(0, "a"), publish(0, "b"), flush(0),
        received(5, {"op": "published", "id": 1, "ids": ["m-1", None], "failed": [
            {"index": 1, "code": "queue_full", "message": "full"}]}),
    ],
    "throttled is repeated with the same seq after retry_ms and blocks its queue": [
        START, *opened(), publish(0, "a"), flush(0),
        received(5, {"op": "error", "id": 1, "code": "throttled", "message": "slow",
                     "retry_ms": 200}),
        publish(10, "b"), flush(10), tick(205), flush(205),
        received(210, {"op": "published", "id": 2, "ids": ["m-1", "m-2"]}),
    ],
    "throttled for too long is the caller's": [
        START, *opened(), publish(0, "a"), flush(0),
        received(5, {"op": "error", "id": 1, "code": "throttled", "message": "slow",
                     "retry_ms": 60000}),
    ],
    "unanswered publishes are repeated in order with their seq": [
        START, *opened(), publish(0, "a"), flush(0), publish(1, "b"), flush(1), publish(2, "c"),
        lost(10), tick(60), *opened(2, 70),
        received(80, {"op": "published", "id": 3, "ids": ["m-1", "m-2", "m-3"],
                      "duplicates": [0]}, link=2),
    ],
    "backoff grows until the connection was stable": [
        START, *opened(), lost(100), tick(150), lost(151, 2), tick(251), lost(252, 3),
        tick(452), *opened(4, 460), lost(10_000, 4), tick(10_050),
    ],
    "an older connection is not listened to": [
        START, *opened(), lost(10), tick(60), received(61, welcome("old")), lost(62, 1),
        *opened(2, 70),
    ],
    "messages are taken, started and acked in runs": [
        START, *opened(), *subscribed(), take(1), take(1), take(1), flush(1),
        settle(5, "ack", "m-1", "a1"), settle(5, "ack", "m-3", "a3"),
        settle(5, "ack", "m-2", "a2"), flush(5), received(9, {"op": "done", "id": 2}),
    ],
    "nacks go by kind": [
        START, *opened(), *subscribed(), take(1), take(1), take(1), flush(1),
        settle(5, "nack", "m-1", "n1", delay_ms=0, error="late"),
        settle(5, "nack", "m-2", "n2"), settle(5, "reject", "m-3", "n3", error="bad"), flush(5),
        received(9, {"op": "done", "id": 2}, {"op": "done", "id": 3}, {"op": "done", "id": 4}),
    ],
    "an ack that came too late": [
        START, *opened(), *subscribed(), take(1), flush(1), settle(5, "ack", "m-1", "a1"), flush(5),
        received(9, {"op": "done", "id": 2, "lease_lost": ["P.1"]}),
    ],
    "a lost lease cancels who works on it": [
        START, *opened(), *subscribed(), take(1), flush(1),
        received(9, {"op": "lease_lost", "sub": 7, "receipts": ["P.1-2"]}),
        settle(10, "ack", "m-1", "a1"), take(11), flush(11),
    ],
    "a kept lease is extended at half its time": [
        START, *opened(), *subscribed(), take(0), flush(0), tick(15_000), flush(15_000),
        received(15_010, {"op": "done", "id": 2}), tick(30_000), flush(30_000),
    ],
    "cut off past its lease, the work is cancelled": [
        START, *opened(), *subscribed(), take(0), flush(0), lost(1_000), tick(1_050),
        lost(1_060, 2), tick(30_000),
    ],
    "resumed: held receipts, lost ones, repeated start and ack": [
        START, *opened(), *subscribed(), take(1), take(1), flush(1),
        settle(5, "ack", "m-1", "a1"), flush(5), lost(10), tick(60),
        *opened(2, 70, resumed=True, lost={"7": ["P.1", "P.3"]}),
        received(80, {"op": "done", "id": 3, "duplicate": ["P.1"]}, link=2),
    ],
    "not resumed: subscribe anew, what was held is lost, sent acks are unknown": [
        START, *opened(), *subscribed(), take(1), take(1), flush(1),
        settle(5, "ack", "m-1", "a1"), flush(5), lost(10), settle(11, "ack", "m-2", "a2"),
        tick(60), *opened(2, 70, session="s-2"),
    ],
    "goaway: no new publish, settles go on, then come back when told": [
        START, *opened(), *subscribed(), take(1), flush(1),
        received(5, {"op": "goaway", "reason": "drain", "reconnect_ms": 500}),
        publish(6, "a"), settle(6, "ack", "m-1", "a1"), flush(6),
        received(9, {"op": "done", "id": 2}), flush(9), tick(509),
    ],
    "closed by the server after goaway": [
        START, *opened(), received(5, {"op": "goaway", "reason": "token_expired",
                                       "reconnect_ms": 100}),
        lost(6, code=1008, reason="unauthorized"), tick(106),
    ],
    "bad credentials are final": [
        START, publish(0, "a"), (0, "connected", {"link": 1, "token": "bad"}),
        received(3, {"op": "error", "code": "unauthorized", "message": "no such token"}),
    ],
    "an overloaded server says when to come back": [
        START, (0, "connected", {"link": 1, "token": None}),
        received(3, {"op": "error", "code": "unavailable", "message": "busy", "retry_ms": 700}),
        tick(703),
    ],
    "a hello that came too late is said again": [
        START, (0, "connected", {"link": 1, "token": "good"}),
        received(5_000, {"op": "error", "code": "unavailable",
                         "message": "no hello within 5000 ms: connect again"}),
        lost(5_001, code=1008, reason="unavailable"), tick(5_050), *opened(2, 5_060),
    ],
    "a close because of a late hello is not final": [
        START, (0, "connected", {"link": 1, "token": "good"}),
        lost(5_001, code=1008, reason="unavailable"), tick(5_051),
    ],
    "auto: an upgrade that is refused means polling, at once": [
        AUTO, publish(0, "a"), lost(5, refused=400), *opened(2, 10),
        received(20, {"op": "published", "id": 1, "ids": ["m-1"]}, link=2),
        lost(30, 2), tick(80), *opened(3, 90, resumed=True),
    ],
    "auto: cut three times before the welcome means polling": [
        AUTO, lost(5, refused=0), tick(55), (60, "connected", {"link": 2, "token": None}),
        lost(65, 2), tick(165), lost(170, 3, refused=502),
    ],
    "auto: attempts that stand still mean polling": [
        AUTO, tick(3_000), tick(3_050), tick(6_050), tick(6_150), tick(9_150),
    ],
    "auto: bad credentials, a busy server and no server say nothing about WebSockets": [
        AUTO, lost(1, refused=401), tick(51), lost(52, 2, refused=503), tick(152), lost(153, 3),
        tick(353), lost(354, 4, refused=429), tick(754), lost(755, 5), tick(1_555),
    ],
    "auto: once there was a WebSocket, one refusal is not enough; then the session is resumed": [
        AUTO, *opened(), publish(5, "a"), publish(5, "b", body=1, dedup="mine"), flush(5),
        lost(10), tick(60), lost(65, 2, refused=400), tick(165), lost(170, 3, refused=400),
        tick(370), lost(375, 4, refused=400), *opened(5, 380, resumed=True),
        received(390, {"op": "published", "id": 2, "ids": ["m-1", "m-2"], "duplicates": [0]},
                 link=5),
    ],
    "auto: cut three times while young means polling, with all that is held": [
        AUTO, *opened(), lost(10_000), tick(10_050), *opened(2, 10_060, resumed=True),
        lost(20_060, 2), tick(20_110), *opened(3, 20_120, resumed=True), *subscribed(20_120, 3),
        take(20_130), publish(20_130, "unsure"), flush(20_130), lost(30_120, 3), tick(30_170),
        *opened(4, 30_180, resumed=True), take(30_190), settle(30_200, "ack", "m-1", "a1"),
        flush(30_200),
        received(30_210, {"op": "published", "id": 3, "ids": ["m-9"], "duplicates": [0]},
                 {"op": "done", "id": 4}, link=4), flush(30_210),
    ],
    "auto: where polling is refused for good it is a WebSocket again": [
        AUTO, *opened(), lost(10), tick(60), *opened(2, 60, resumed=True), lost(70, 2), tick(170),
        *opened(3, 170, resumed=True), lost(180, 3), tick(380),
        (390, "connected", {"link": 4, "token": None}),
        received(395, {"op": "error", "code": "bad_request", "message": "no"}, link=4),
        *opened(5, 400, resumed=True), lost(410, 5), tick(810), lost(815, 6, refused=400),
    ],
    "auto: a server that goes away is not a proxy that cuts": [
        AUTO, *opened(), lost(1_000), tick(1_050), lost(1_060, 2), tick(1_200),
        *opened(3, 1_200), lost(2_000, 3), tick(2_300), lost(2_310, 4), tick(2_800),
        *opened(5, 2_800), lost(3_000, 5), tick(3_900), *opened(6, 3_900),
    ],
    "auto: back to a WebSocket when it works again, with all that is held": [
        AUTO, lost(5, refused=400), *opened(2, 10), *subscribed(10, 2), take(10), flush(10),
        tick(5_010), probed(5_100, 2, is_good=False), tick(15_100), publish(15_150, "a"),
        flush(15_150), probed(15_200, 2), publish(15_210, "b"), settle(15_220, "ack", "m-1", "a1"),
        flush(15_220), take(15_220), *opened(3, 15_230, resumed=True), take(15_230),
        received(15_240, {"op": "published", "id": 5, "ids": ["m-8", "m-9"], "duplicates": [0]},
                 {"op": "done", "id": 4}, link=3), flush(15_240),
    ],
    "auto: a probe that comes too late changes nothing": [
        AUTO, lost(5, refused=400), *opened(2, 10), tick(5_010), lost(5_020, 2), probed(5_030, 2),
        tick(5_070), *opened(3, 5_080, resumed=True), probed(5_090, 2),
        (5_100, "close", {"timeout_ms": 30000, "ticket": "close"}), probed(5_110, 3),
    ],
    "auto: when the WebSocket fails after all it polls again, at once": [
        AUTO, lost(5, refused=400), *opened(2, 10), tick(5_010), probed(5_020, 2),
        lost(5_030, 3, refused=0), *opened(4, 5_040, resumed=True), tick(15_040),
        probed(15_050, 4), tick(18_050), *opened(6, 18_060, resumed=True),
    ],
    "what one answer says is lost, another does not bring back": [
        START, *opened(), *subscribed(), take(0), flush(0), tick(15_000), flush(15_000),
        settle(15_001, "ack", "m-1", "a1"), flush(15_001),
        received(15_010, {"op": "done", "id": 2, "lease_lost": ["P.1"]}),
        received(15_020, {"op": "error", "id": 3, "code": "bad_request", "message": "no"}),
        tick(31_000), flush(31_000),
    ],
    "polling: a session like any other": [
        POLL, *opened(), *subscribed(), take(5_000), flush(5_000), lost(5_100), tick(5_150),
        *opened(2, 5_160, resumed=True), tick(20_000), flush(20_000),
        received(20_010, {"op": "done", "id": 2}, link=2), settle(21_000, "ack", "m-1", "a1"),
        flush(21_000), received(21_010, {"op": "done", "id": 3}, link=2),
        (21_020, "close", {"timeout_ms": 30000, "ticket": "close"}), flush(21_020),
        received(21_030, {"op": "done", "id": 4}, {"op": "done", "id": 5}, link=2), flush(21_030),
    ],
    "polling: refused for good, and no WebSocket was wished for": [
        POLL, (0, "connected", {"link": 1, "token": None}),
        received(5, {"op": "error", "code": "bad_request", "message": "no"}),
    ],
    "taken over is final": [START, *opened(), lost(5, code=4001, reason="taken_over")],
    "no server in time": [
        START, lost(9_000), tick(9_050), lost(9_990, 2),
    ],
    "silence is death": [
        START, *opened(), tick(62_499), received(62_499, {"op": "beat", "now": 0}), tick(124_998),
        tick(124_999),
    ],
    "a dial that hangs": [START, tick(10_000)],
    "an unknown subscription's messages go back": [
        START, *opened(), received(5, deliver(9, 1, 2)), flush(5),
    ],
    "a subscription that the server ends": [
        START, *opened(), *subscribed(), take(1), flush(1),
        received(5, {"op": "ended", "sub": 7, "code": "not_found", "message": "deleted"}),
    ],
    "unsubscribe gives back what was not taken": [
        START, *opened(), *subscribed(), take(1), flush(1),
        (5, "unsubscribe", {"subscription": "S", "ticket": "un"}), flush(5),
        received(9, {"op": "done", "id": 2}, {"op": "done", "id": 3}),
    ],
    "close waits for handlers and answers": [
        START, *opened(), *subscribed(), take(1), flush(1), publish(2, "a"),
        (3, "close", {"timeout_ms": 30000, "ticket": "close"}), flush(3),
        received(5, {"op": "published", "id": 4, "ids": ["m-9"]}, {"op": "done", "id": 2},
                 {"op": "done", "id": 3}), flush(5),
        settle(9, "ack", "m-1", "a1"), flush(9), received(12, {"op": "done", "id": 5}), flush(12),
    ],
    "close gives up after its time": [
        START, *opened(), *subscribed(), take(1), flush(1), publish(2, "a"),
        (3, "close", {"timeout_ms": 1000, "ticket": "close"}), flush(3), tick(1_003),
    ],
    "close with a server that is silent: a goodbye is not waited for long": [
        START, *opened(), *subscribed(), flush(1), close(3), flush(3), tick(2_002), flush(2_002),
        tick(2_003), flush(2_003),
    ],
    "close without a server: what was not taken is not waited for": [
        START, *opened(), *subscribed(), flush(1), lost(5), close(6), flush(6),
    ],
    "close without a server: an answer that is missed has its time": [
        START, *opened(), *subscribed(), take(1), publish(1, "a"), flush(1),
        settle(2, "ack", "m-1", "a1"), flush(2), close(3), flush(3), lost(1_000), flush(1_000),
        tick(1_050), lost(1_060, 2), flush(1_060), tick(5_999), flush(5_999), tick(6_000),
        flush(6_000),
    ],
    "close without a server: it comes back in time": [
        START, *opened(), *subscribed(), take(1), flush(1), settle(2, "ack", "m-1", "a1"), flush(2),
        lost(5), close(6), flush(6), tick(55), *opened(2, 60, resumed=True),
        received(70, {"op": "done", "id": 3}, {"op": "done", "id": 4}, {"op": "done", "id": 5},
                 link=2), flush(70),
    ],
    "close without a server: handlers have all their time, and then it is over": [
        START, *opened(), *subscribed(), take(1), flush(1), lost(5), close(6), flush(6),
        tick(5_006), flush(5_006), settle(9_000, "ack", "m-1", "a1"), flush(9_000),
    ],
    "who closes a subscription without a server does not wait": [
        START, *opened(), *subscribed(), flush(1), lost(5),
        (6, "unsubscribe", {"subscription": "S", "ticket": "un"}), flush(6), tick(55),
        *opened(2, 60, resumed=True),
        received(70, {"op": "done", "id": 2}, {"op": "done", "id": 3}, link=2), flush(70),
    ],
    "who closes a subscription waits no longer when the server goes": [
        START, *opened(), *subscribed(), flush(1),
        (3, "unsubscribe", {"subscription": "S", "ticket": "un"}), flush(3), lost(5),
    ],
    "a publish without an answer fails in the end": [
        START, *opened(), publish(0, "a"), flush(0), tick(1_000), tick(120_000),
    ],
}  # fmt: skip
