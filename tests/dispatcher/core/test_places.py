"""Places: a limit that many share."""

from __future__ import annotations

from pushlane_dispatcher.core.places import Claim, Places

ANN = Claim("ann", 50)
BOB = Claim("bob", 50)
PAGE = Claim("page", 2, least=4)


def test_a_share_is_a_part_of_the_limit() -> None:
    assert (ANN.share_of(100), ANN.share_of(1), PAGE.share_of(1_000)) == (50, 1, 20)
    assert (PAGE.share_of(100), PAGE.share_of(3)) == (4, 3)


def test_nobody_gets_more_than_a_share() -> None:
    places = Places("polls", 4, "long polls")
    for _ in range(2):
        assert places.refusal((ANN,)) is None
        places.take((ANN,))
    refusal = places.refusal((ANN,))
    assert refusal is not None
    assert (refusal.limit, refusal.retry_ms) == ("polls_share", 1_000)
    assert refusal.message == "your share of long polls is used up (2 of 4): try again later"
    assert places.refusal((BOB,)) is None
    assert (places.taken, places.over((ANN, BOB))) == (2, ANN)


def test_the_whole_limit_is_everybodys() -> None:
    places = Places("polls", 4, "long polls")
    places.take((ANN,), 2)
    places.take((BOB,), 2)
    assert places.is_full
    for claims in ((), (Claim("carl", 50),)):
        refusal = places.refusal(claims)
        assert refusal is not None
        assert (refusal.limit, refusal.message) == (
            "polls",
            "too many long polls (4): try again later",
        )
    places.give_back((BOB,))
    assert places.over((BOB,)) is None
    places.give_back((BOB,))
    assert (places.taken, places.is_full, places._by) == (2, False, {"ann": 2})


def test_every_claim_needs_room() -> None:
    places = Places("sessions", 1_000, "sessions")
    places.take((ANN, PAGE), 20)
    assert places.over((ANN, PAGE)) == PAGE
    assert places.over((ANN,)) is None


def test_the_first_one_always_goes() -> None:
    places = Places("bytes", 100, "bytes")
    assert places.refusal((PAGE,), 1_000) is None
    places.take((PAGE,), 1_000)
    assert places.refusal((PAGE,), 1) is not None
    assert places.refusal((), 1) is not None


def test_who_says_nothing_may_have_everything() -> None:
    places = Places("polls", 4, "long polls")
    places.take((), 3)
    assert places.refusal(()) is None
