"""A server that asks nobody for a key stays on its machine, unless told otherwise."""

from __future__ import annotations

import pytest

from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.listener.address import Address, check_exposure, is_local
from tests.gateway.auth.tools import make_authenticator

LOCAL = [
    *["127.0.0.1:8420", "127.9.9.9:1", "[::1]:8420", "localhost:8420", "LOCALHOST:1"],
    "unix:/run/pushlane.sock",
]
EXPOSED = [
    *["0.0.0.0:8420", "[::]:8420", "192.168.1.5:8420", "10.0.0.1:1", "[2001:db8::1]:8420"],
    *["queue.example:8420", "localhost.example:8420", "[::ffff:127.0.0.1]:1"],
]


@pytest.mark.parametrize("address", LOCAL)
def test_this_machine_is_fine_without_keys(address: str) -> None:
    check_exposure([address], make_authenticator())
    assert is_local(address)


@pytest.mark.parametrize("address", EXPOSED)
def test_others_are_not(address: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        check_exposure(["127.0.0.1:1", address], make_authenticator())
    text = str(refusal.value)
    assert address in text
    assert "127.0.0.1:1 " not in text
    assert "pushlane token create" in text
    assert "--insecure" in text


@pytest.mark.parametrize("address", EXPOSED)
def test_unless_keys_are_asked_for_or_it_was_said_aloud(address: str) -> None:
    check_exposure([address], make_authenticator(required=True))
    check_exposure([address], make_authenticator(), insecure=True)


def test_parsed_addresses_will_do() -> None:
    check_exposure([Address(host="::1", port=1), Address(path="/s")], make_authenticator())
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0:1"):
        check_exposure([Address(host="0.0.0.0", port=1)], make_authenticator())
