"""What two nodes tell each other before anything else, and what follows from it. No I/O.

Whoever dials speaks first. Each line is a frame in MessagePack, but for the preface:

    dialler                         listener
    PUSHLANE-LINK, Greeting   ──▶
                              ◀──   Greeting
    Proof                     ──▶
                              ◀──   Verdict: `ok` or a refusal, with a proof of its own

A proof shows that its maker knows the cluster's key, and is good for this one handshake: it covers
both greetings, byte for byte, and each has a random nonce. The dialler proves itself first, so that
a stranger who connects gets nothing that a guess of the key could be tried on. The verdicts that
follow from what was proved are proved as well: `other_process` may cost a node its slots.

This outer form stays as it is; the greetings say which versions of what follows a node speaks.
Fields may be added, and who doesn't know them passes over them.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec

from pushlane_dispatcher.cluster.failures import Refusal
from pushlane_dispatcher.cluster.links.framing import framed

PREFACE = b"PUSHLANE-LINK\r\n\r\n"
"""To a server of HTTP this is a whole request, and a wrong one: it answers at once."""
VERSIONS = 1, 1
"""The versions of the link protocol that this node speaks, oldest and newest."""
LANES = ("data", "rest")
NONCE_BYTES = 16
LEAST_KEY = 16
"""Bytes of a cluster key: one that can be guessed protects nothing."""

OK = "ok"
DIALLER = "dialler"
PROVED = (Refusal.OTHER_PROCESS, Refusal.ITSELF)
"""Refusals that the listener proves: something follows from them."""

Name = Annotated[str, msgspec.Meta(max_length=255)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class Greeting(msgspec.Struct, frozen=True, kw_only=True, tag="greeting"):
    """Who a node is, and what it speaks."""

    cluster: Name
    """The cluster's name."""
    process: Name
    """The id of this run of the server: a node that starts again has another one."""
    name: Name
    """What people call the node."""
    version: Name
    """Of the software; for people."""
    oldest: Count
    """The link protocol's oldest version that it speaks …"""
    newest: Count
    """… and the newest."""
    frame_bytes: Count
    """The longest frame that it takes."""
    nonce: Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    wall_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    """Its wall clock."""
    lane: Name = ""
    """What the link is for: `data` or `rest`. The dialler says so."""
    expects: Name = ""
    """The id of the process that the dialler wants to reach; empty: whoever is there."""

    def __post_init__(self) -> None:
        for text in (self.cluster, self.process, self.name, self.version, self.lane, self.expects):
            if not text.isprintable():
                raise ValueError("not printable")  # it would stand in a log
        if self.oldest > self.newest:
            raise ValueError("oldest > newest")


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    proof: bytes


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    code: Name
    """`ok`, or a `Refusal`."""
    proof: bytes = b""


Word = Greeting | Proof | Verdict


class Me(NamedTuple):
    """What this node says of itself."""

    cluster: str
    process: str
    name: str
    version: str
    wall: Callable[[], int]
    """Unix milliseconds."""
    nonce: Callable[[], bytes] = lambda: secrets.token_bytes(NONCE_BYTES)
    versions: tuple[int, int] = VERSIONS

    def greeting(self, frame_bytes: int, lane: str = "", expects: str = "") -> Greeting:
        return Greeting(
            cluster=self.cluster,
            process=self.process,
            name=self.name,
            version=self.version,
            oldest=self.versions[0],
            newest=self.versions[1],
            frame_bytes=frame_bytes,
            nonce=self.nonce(),
            wall_ms=self.wall(),
            lane=lane,
            expects=expects,
        )


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What a handshake found: all that a link needs to begin."""

    peer: Greeting
    """Who is at the other end."""
    lane: str
    """What the link is for: `data` or `rest`."""
    version: int
    """Of the link protocol: the newest that both speak."""
    frame_bytes: int
    """The longest frame that both take."""
    ahead_ms: int
    """By how much the peer's wall clock is ahead of ours, about."""
    clocks_apart: bool
    """Whether that is more than `clock_ms`, either way: somebody should be told."""
    early: bytes = b""
    """What came right behind the handshake."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Word)


def encode(word: Word) -> bytes:
    return _encoder.encode(word)


def decode(data: bytes) -> Word:
    """Raises ValueError, and nothing of what is in the data is in its text."""
    try:
        word: Word = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError("no word of a handshake") from None
    return word


BUSY_WORD = framed(encode(Verdict(Refusal.BUSY.value)))


def prove(key: bytes, says: str, dialler: bytes, listener: bytes) -> bytes:
    """The proof of who says this, of a handshake with these two greetings, as they were sent."""
    parts = (b"pushlane link", says.encode(), dialler, listener)
    return hmac.digest(key, b"".join(map(framed, parts)), "sha256")


def same(one: bytes, other: bytes) -> bool:
    """In a time that doesn't depend on where they differ."""
    return hmac.compare_digest(one, other)


def judge(dialler: Greeting, listener: Greeting) -> tuple[Refusal, str] | None:
    """What keeps these two apart, with words for people; both see it in the greetings."""
    if dialler.cluster != listener.cluster:
        named = f"{dialler.name} is of cluster {dialler.cluster}, {listener.name} of"
        return Refusal.OTHER_CLUSTER, f"{named} {listener.cluster}"
    speak = f"{_spoken(dialler)} dials, {_spoken(listener)} listens"
    if dialler.newest < listener.oldest:
        return Refusal.OLD_VERSION, speak
    if dialler.oldest > listener.newest:
        return Refusal.NEW_VERSION, speak
    if dialler.lane not in LANES:
        return Refusal.NEW_VERSION, f"{dialler.name} dials for the unknown lane {dialler.lane!r}"
    return None


def judge_proved(dialler: Greeting, listener: Greeting) -> tuple[Refusal, str] | None:
    """What else keeps them apart; it counts only when both have proved who they are."""
    if dialler.process == listener.process:
        return Refusal.ITSELF, f"{dialler.name} dialled itself"
    if dialler.expects and dialler.expects != listener.process:
        named = f"{listener.name} runs as {listener.process}, {dialler.name} expected"
        return Refusal.OTHER_PROCESS, f"{named} {dialler.expects}"
    return None


def agree(
    mine: Greeting, theirs: Greeting, lane: str, now_ms: int, clock_ms: int, early: bytes
) -> Agreement:
    ahead = theirs.wall_ms - now_ms
    return Agreement(
        peer=theirs,
        lane=lane,
        version=min(mine.newest, theirs.newest),
        frame_bytes=min(mine.frame_bytes, theirs.frame_bytes),
        ahead_ms=ahead,
        clocks_apart=abs(ahead) > clock_ms,
        early=early,
    )


def _spoken(node: Greeting) -> str:
    return f"{node.name} ({node.version}, link versions {node.oldest} to {node.newest})"
