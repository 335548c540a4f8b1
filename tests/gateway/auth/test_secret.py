"""A secret shows itself to nobody who doesn't ask for it by name."""

import logging
import pickle
import traceback

import msgspec
import pytest

from pushlane_gateway.auth.secret import MASK, Secret

TEXT = "correct-horse-battery-staple"


def test_nothing_that_prints_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(TEXT)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>9}", f"{secret!r}", str([secret])]
    assert not any(TEXT in text for text in shown)
    assert str(secret) == MASK
    logging.getLogger("test").warning("it is %s %r", secret, secret)
    assert TEXT not in caplog.text


def test_a_struct_that_holds_it_hides_it_too() -> None:
    class Holder(msgspec.Struct):
        secret: Secret

    holder = Holder(Secret(TEXT))
    assert TEXT not in repr(holder)
    with pytest.raises(TypeError, match="Secret") as refusal:
        msgspec.json.encode(holder)
    assert TEXT not in "".join(traceback.format_exception(refusal.value))


def test_it_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(TEXT))


def test_it_can_be_revealed_measured_and_compared() -> None:
    assert Secret(TEXT).reveal() == TEXT
    assert len(Secret(TEXT)) == len(TEXT)
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret(TEXT + "r")
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1
