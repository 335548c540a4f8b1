"""What two nodes say before anything else, byte for byte: version 1 stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pushlane_dispatcher.cluster.failures import Refusal
from pushlane_dispatcher.cluster.links.framing import framed
from pushlane_dispatcher.cluster.links.greeting import (
    BUSY_WORD,
    DIALLER,
    OK,
    PREFACE,
    Greeting,
    Proof,
    Verdict,
    agree,
    decode,
    encode,
    judge,
    judge_proved,
    prove,
)
from tests.dispatcher.cluster.rig import KEY, WALL, me

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
"""Of link protocol 1, with KEY; written once, kept from then on."""

DIAL = me("a").greeting(8_454_144, "data", "process-b")
LISTEN = me("b").greeting(8_454_144)


def test_golden_words() -> None:
    dialler, listener = encode(DIAL), encode(LISTEN)
    assert {
        "preface": PREFACE.decode(),
        "dialler": dialler.hex(),
        "listener": listener.hex(),
        "proof": encode(Proof(prove(KEY, DIALLER, dialler, listener))).hex(),
        "ok": encode(Verdict(OK, prove(KEY, OK, dialler, listener))).hex(),
        "other_process": encode(
            Verdict("other_process", prove(KEY, "other_process", dialler, listener))
        ).hex(),
        "wrong_key": encode(Verdict("wrong_key")).hex(),
        "proof_without_key": prove(b"", DIALLER, dialler, listener).hex(),
    } == GOLDEN


def test_golden_words_are_understood() -> None:
    assert decode(bytes.fromhex(GOLDEN["dialler"])) == DIAL
    assert decode(bytes.fromhex(GOLDEN["listener"])) == LISTEN
    assert isinstance(decode(bytes.fromhex(GOLDEN["proof"])), Proof)
    assert isinstance(decode(bytes.fromhex(GOLDEN["ok"])), Verdict)


def test_golden_codes() -> None:
    """They travel: none may be renamed."""
    assert {code.value for code in Refusal} == {
        "other_cluster",
        "wrong_key",
        "old_version",
        "new_version",
        "other_process",
        "itself",
        "busy",
        "not_a_link",
        "certificate",
        "other",
    }


def test_fields_of_later_versions_are_passed_over() -> None:
    told = msgspec.msgpack.decode(encode(DIAL)) | {"colour": ["blue"], "deep": {"er": 1}}
    assert decode(msgspec.msgpack.encode(told)) == DIAL


@pytest.mark.parametrize(
    "change",
    [
        {"name": "two\nlines"},
        {"process": "\x1b[2J"},
        {"cluster": "x" * 256},
        {"nonce": b"short"},
        {"wall_ms": -1},
        {"oldest": 3, "newest": 2},
        {"oldest": 0},
        {"frame_bytes": 0},
        {"type": "salute"},
        {"version": None},
    ],
)
def test_bad_greetings(change: dict[str, object]) -> None:
    told = msgspec.msgpack.decode(encode(DIAL)) | change
    with pytest.raises(ValueError, match=r"^no word of a handshake$"):
        decode(msgspec.msgpack.encode(told))


@pytest.mark.parametrize(
    "data", [b"", b"\x91" * 4_000, b"\x81\xa1x" * 1_300, b"\xdd\xff\xff\xff\xff", b"\xc1"]
)
def test_bad_words(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^no word of a handshake$"):
        decode(data)


def test_a_proof_is_good_for_one_thing() -> None:
    proofs = {
        prove(KEY, DIALLER, b"a", b"b"),
        prove(KEY, OK, b"a", b"b"),
        prove(KEY, "itself", b"a", b"b"),
        prove(KEY, OK, b"b", b"a"),
        prove(KEY, OK, b"ab", b""),
        prove(KEY, OK, b"a", b"c"),
        prove(b"", OK, b"a", b"b"),
        prove(KEY[1:], OK, b"a", b"b"),
    }
    assert len(proofs) == 8


def greeting(name: str = "a", **changes: object) -> Greeting:
    return msgspec.structs.replace(me(name).greeting(1 << 23, "data"), **changes)


def test_judgements() -> None:
    listener = greeting("b", oldest=3, newest=4)
    versions = {
        (1, 2): "old_version",
        (2, 3): None,
        (3, 3): None,
        (4, 9): None,
        (5, 6): "new_version",
    }
    for (oldest, newest), code in versions.items():
        found = judge(greeting(oldest=oldest, newest=newest), listener)
        assert (found and found[0].value) == code
    assert judge(greeting(oldest=1, newest=2), listener) == (
        Refusal.OLD_VERSION,
        "a (0.1.0, link versions 1 to 2) dials, b (0.1.0, link versions 3 to 4) listens",
    )
    found = judge(greeting(cluster="staging"), greeting("b"))
    assert found == (Refusal.OTHER_CLUSTER, "a is of cluster staging, b of test")
    assert judge(greeting(lane="bulk"), greeting("b")) == (
        Refusal.NEW_VERSION,
        "a dials for the unknown lane 'bulk'",
    )
    assert judge(greeting(), greeting("b")) is None


def test_judgements_of_who_is_there() -> None:
    assert judge_proved(greeting(), greeting("b")) is None
    assert judge_proved(greeting(expects="process-b"), greeting("b")) is None
    assert judge_proved(greeting(expects="process-c"), greeting("b")) == (
        Refusal.OTHER_PROCESS,
        "b runs as process-b, a expected process-c",
    )
    assert judge_proved(greeting(expects="process-c"), greeting()) == (
        Refusal.ITSELF,
        "a dialled itself",
    )


def test_an_agreement() -> None:
    mine = greeting(oldest=1, newest=3, frame_bytes=500)
    theirs = greeting("b", oldest=2, newest=2, frame_bytes=400, wall_ms=WALL + 61_000)
    found = agree(mine, theirs, "rest", WALL, 60_000, b"")
    assert (found.version, found.frame_bytes, found.lane) == (2, 400, "rest")
    assert (found.ahead_ms, found.clocks_apart) == (61_000, True)
    assert agree(mine, theirs, "rest", WALL + 122_000, 60_000, b"").clocks_apart
    assert not agree(mine, theirs, "rest", WALL + 100_000, 60_000, b"").clocks_apart


def test_busy_is_one_word() -> None:
    assert framed(encode(Verdict("busy"))) == BUSY_WORD
