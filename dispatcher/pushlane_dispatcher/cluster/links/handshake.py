"""The handshake of a link, over any stream: `greet` where a node dials, `welcome` where it listens.

Both raise LinkFailed, and nothing else, whatever comes; neither closes the stream. A stranger costs
at most `stranger_bytes` of reading and `handshake_ms`. All that it is told is a code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable, Refusal, Unreached
from pushlane_dispatcher.cluster.links.framing import framed
from pushlane_dispatcher.cluster.links.greeting import (
    DIALLER,
    OK,
    PREFACE,
    PROVED,
    Agreement,
    Greeting,
    Me,
    Proof,
    Verdict,
    agree,
    encode,
    judge,
    judge_proved,
    prove,
    same,
)
from pushlane_dispatcher.cluster.links.talk import Talk
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings

NO_KEY = "{} does not have the cluster's key"


async def greet(
    stream: trio.abc.Stream,
    me: Me,
    *,
    lane: str,
    expects: str = "",
    key: bytes = b"",
    settings: ClusterSettings = DEFAULT_SETTINGS,
) -> Agreement:
    """The dialling side; raises LinkRefused or LinkUnreachable."""
    talk = Talk(stream, settings)
    with _in_time(settings.handshake_ms):
        mine = me.greeting(settings.frame_bytes, lane, expects)
        sent = encode(mine)
        await talk.say(PREFACE + framed(sent))
        theirs = await talk.hear(Greeting, Verdict)
        if isinstance(theirs, Verdict):
            raise LinkRefused(_refusal(theirs), "the listening side said so")
        answer = talk.heard
        if found := judge(mine, theirs):
            raise LinkRefused(*found)
        await talk.say_word(Proof(prove(key, DIALLER, sent, answer)))
        verdict = await talk.hear(Verdict)
        _accept(verdict, prove(key, verdict.code, sent, answer), mine, theirs)
    return agree(mine, theirs, lane, me.wall(), settings.clock_ms, talk.rest())


async def welcome(
    stream: trio.abc.Stream,
    me: Me,
    *,
    key: bytes = b"",
    settings: ClusterSettings = DEFAULT_SETTINGS,
) -> Agreement:
    """The listening side; raises LinkRefused, after it told the other one, or LinkUnreachable."""
    talk = Talk(stream, settings)
    mine = me.greeting(settings.frame_bytes)
    with _in_time(settings.handshake_ms):
        await talk.hear_preface()
        heard = sent = b""
        try:
            theirs = await talk.hear(Greeting)
            heard, sent = talk.heard, await talk.say_word(mine)
            await _check(talk, theirs, mine, prove(key, DIALLER, heard, sent))
        except LinkRefused as refusal:
            code = refusal.code
            proof = prove(key, code.value, heard, sent) if code in PROVED else b""
            await talk.part(framed(encode(Verdict(code.value, proof))))
            raise
        await talk.say_word(Verdict(OK, prove(key, OK, heard, sent)))
    return agree(mine, theirs, theirs.lane, me.wall(), settings.clock_ms, talk.rest())


async def _check(talk: Talk, theirs: Greeting, mine: Greeting, proof: bytes) -> None:
    """Return when the dialling node is welcome."""
    if found := judge(theirs, mine):
        raise LinkRefused(*found)
    shown = await talk.hear(Proof)
    if not same(shown.proof, proof):
        raise LinkRefused(Refusal.WRONG_KEY, NO_KEY.format(theirs.name))
    if found := judge_proved(theirs, mine):
        raise LinkRefused(*found, theirs)


def _accept(verdict: Verdict, proof: bytes, mine: Greeting, theirs: Greeting) -> None:
    """Return when the listening node wants us, and has proved that it is one of ours."""
    said = f"{theirs.name} said so"
    if verdict.code != OK and _refusal(verdict) not in PROVED:
        raise LinkRefused(_refusal(verdict), said)
    if not same(verdict.proof, proof):
        raise LinkRefused(Refusal.WRONG_KEY, NO_KEY.format(theirs.name))
    if verdict.code != OK:
        code, text = judge_proved(mine, theirs) or (_refusal(verdict), said)
        raise LinkRefused(code, text, theirs)


def _refusal(verdict: Verdict) -> Refusal:
    try:
        return Refusal(verdict.code)
    except ValueError:
        return Refusal.OTHER


@contextmanager
def _in_time(ms: int) -> Iterator[None]:
    with trio.move_on_after(ms / 1000) as scope:
        yield
    if scope.cancelled_caught:
        raise LinkUnreachable(Unreached.TIMED_OUT, f"the handshake took longer than {ms} ms")
