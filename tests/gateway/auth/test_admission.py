"""Admission: shares of what all share."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.wire.errors import Throttled
from pushlane_gateway.auth.admission import Admission, ShareSettings
from pushlane_gateway.auth.identity import ANONYMOUS, Identity

ANN = Identity("ann", "default", (), key="k1")
BOB = Identity("bob", "default", (), key="k2")
PAGE = replace(ANN, token="t1", expires_at=1)


def admission(most: int, **settings: int) -> Admission:
    made = Admission(ShareSettings(**settings))
    made.limit("polls", most, "long polls")
    return made


def test_half_for_a_key_and_the_rest_for_others() -> None:
    it = admission(10)
    permits = [it.admit(ANN, "polls") for _ in range(5)]
    with pytest.raises(Throttled) as refused:
        it.admit(ANN, "polls")
    assert refused.value.limit == "polls_share"
    others = [it.admit(BOB, "polls") for _ in range(5)]
    with pytest.raises(Throttled) as refused:
        it.admit(replace(BOB, key="k3"), "polls")
    assert (refused.value.limit, it.taken()) == ("polls", {"polls": 10})
    for permit in permits + others:
        permit.release()
        permit.release()
    assert it.taken() == {"polls": 0}


def test_a_token_has_twenty_polls_and_its_key_goes_on() -> None:
    it = admission(1_000)
    for _ in range(20):
        it.admit(PAGE, "polls")
    with pytest.raises(Throttled, match=r"your share of long polls is used up \(20 of 1000\)"):
        it.admit(PAGE, "polls")
    it.admit(replace(PAGE, token="t2"), "polls")
    for _ in range(479):
        it.admit(ANN, "polls")
    with pytest.raises(Throttled, match="500 of 1000"):
        it.admit(replace(PAGE, token="t3"), "polls")


def test_a_token_can_do_a_few_things_at_once() -> None:
    it = admission(32)
    for _ in range(4):
        it.admit(PAGE, "polls")
    with pytest.raises(Throttled):
        it.admit(PAGE, "polls")


def test_shares_can_be_set() -> None:
    it = admission(10, key_percent=10, token_percent=100, token_least=1)
    with it.admit(PAGE, "polls"), pytest.raises(Throttled, match="1 of 10"):
        it.admit(PAGE, "polls")
    assert it.taken() == {"polls": 0}


def test_without_authentication_there_is_nobody_to_share_with() -> None:
    it = admission(10)
    for _ in range(10):
        it.admit(ANONYMOUS, "polls")
    with pytest.raises(Throttled, match="too many long polls"):
        it.admit(ANONYMOUS, "polls")


def test_what_costs_more() -> None:
    it = admission(100)
    it.admit(ANN, "polls", cost=80)  # the first one always goes
    with pytest.raises(Throttled):
        it.admit(ANN, "polls", cost=1)
    it.admit(BOB, "polls", cost=20)
