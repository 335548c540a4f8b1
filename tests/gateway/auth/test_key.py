"""API keys: random, whole, and kept without their secret."""

import re

import pytest

from pushlane.wire.errors import BadRequest
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.auth.key import MAX_LABEL, ApiKey, check_label, id_of, make_key
from pushlane_gateway.auth.rule import Rule
from pushlane_gateway.auth.secret import Secret

RULES = (Rule("publish", "orders*"),)


def make(name: str = "ci") -> tuple[ApiKey, Secret]:
    return make_key(name=name, tenant="default", rules=RULES, now=5, expires_at=9)


def test_a_key_is_an_id_and_256_bits_in_letters_and_digits() -> None:
    key, secret = make()
    assert re.fullmatch(r"plk_[0-9A-Za-z]{12}_[0-9A-Za-z]{43}", secret.reveal())
    assert id_of(secret.reveal()) == key.id
    assert 62**43 > 2**256


def test_the_numbers_drawn_are_as_large_as_promised() -> None:
    drawn: list[int] = []

    def largest(below: int) -> int:
        drawn.append(below)
        return below - 1

    _, secret = make_key(name="a", tenant="default", rules=RULES, now=0, randbelow=largest)
    assert drawn == [62**12, 2**256]
    assert id_of(secret.reveal()) == "z" * 12


def test_no_two_are_the_same() -> None:
    assert len({make()[0].id for _ in range(100)}) == 100
    assert len({make()[1] for _ in range(100)}) == 100


def test_only_its_own_text_is_its_secret() -> None:
    key, secret = make()
    text = secret.reveal()
    assert key.is_secret(text)
    assert not key.is_secret(text[:-1] + ("a" if text[-1] != "a" else "b"))
    assert not key.is_secret(make()[1].reveal())


def test_it_does_not_hold_the_secret() -> None:
    key, secret = make()
    tail = secret.reveal().rpartition("_")[2]
    for shown in (repr(key), str(key), str(key.identity()), str(key.digest)):
        assert tail not in shown
    assert key.digest.hex() not in repr(key)


def test_it_gives_an_identity() -> None:
    key, _ = make()
    identity = key.identity()
    assert identity == Identity("ci", "default", RULES, 9, key.id)
    assert identity.allows("publish", "orders.eu")
    assert not identity.allows("consume", "orders.eu")


def test_anonymous_may_do_everything_in_the_default_tenant() -> None:
    assert ANONYMOUS.allows("admin", "anything")
    assert (ANONYMOUS.tenant, ANONYMOUS.expires_at, ANONYMOUS.key) == ("default", None, None)


@pytest.mark.parametrize(
    "text",
    [
        *["", "plk_", "plk__", "plk_abc_def", "plk_" + "a" * 12, "plk_" + "a" * 12 + "_"],
        *["plk_" + "a" * 12 + "_" + "b" * 42, "plk_" + "a" * 12 + "_" + "b" * 44],
        *["PLK_" + "a" * 12 + "_" + "b" * 43, "plk_" + "a" * 12 + "_" + "b" * 43 + "\n"],
        *["plk_" + "ä" * 12 + "_" + "b" * 43, "plk_" + "١" * 12 + "_" + "b" * 43],
    ],
)
def test_what_is_no_whole_key(text: str) -> None:
    assert id_of(text) is None


@pytest.mark.parametrize(
    "name", ["", " ", "a ", "a\n", "a\x1b[31m", "a" * (MAX_LABEL + 1), "\ud800"]
)
def test_names_that_would_spoil_a_list_or_log(name: str) -> None:
    with pytest.raises(BadRequest, match="name"):
        make(name)


def test_other_names_are_fine() -> None:
    assert check_label("CI für Bestellungen") == "CI für Bestellungen"
