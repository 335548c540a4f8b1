"""Which pages may connect: every trick that a page or a name server could try."""

from __future__ import annotations

import pytest

from pushlane_gateway.auth.origin import OriginPolicy, check_host, check_origin, is_loopback
from pushlane_gateway.configuration.errors import ConfigurationError

APP = "https://app.example.com"
LOCAL = "127.0.0.1:8420"

OPEN = OriginPolicy(lambda: False, [APP])
CLOSED = OriginPolicy(lambda: True, [APP, "http://localhost:3000", "capacitor://localhost"])
INSECURE = OriginPolicy(lambda: False, [APP], insecure=True, allowed_hosts=["Queue.lan"])

TRICKS = [
    "null",
    "",
    "https://evil.example",
    "https://app.example.com.evil.example",
    "https://evil-app.example.com",
    "https://evil.example/https://app.example.com",
    "https://app.example.com@evil.example",
    "https://evil.example#app.example.com",
    "https://evil.example?app.example.com",
    "http://app.example.com",
    "HTTPS://app.example.com",
    "https://APP.example.com",
    "https://app.example.com:443",
    "https://app.example.com:8443",
    "https://app.example.com/",
    "https://app.example.com.",
    "https://app.example.com ",
    " https://app.example.com",
    "https://app.example.com\n",
    "https://app.example.com, https://evil.example",
    "app.example.com",
    "//app.example.com",
    "*",
    "file://",
]

LOCAL_TRICKS = [
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://evil.example:127",
    "http://notlocalhost",
    "http://evil-localhost",
    "http://app.localhost",
    "http://localhost.",
    "http://LOCALHOST:3000",
    "HTTP://localhost:3000",
    "http://localhost:80",
    "https://localhost:443",
    "https://127.0.0.1:443",
    "http://localhost:3000/",
    "http://localhost:03000",
    "http://localhost:",
    "http://localhost@evil.example",
    "http://evil.example\\@localhost",
    "http://127.1",
    "http://2130706433",
    "http://0x7f.0.0.1",
    "http://0177.0.0.1",
    "http://127.0.0.01",
    "http://0.0.0.0",
    "http://[::]",
    "http://[::ffff:127.0.0.1]",
    "http://[0:0:0:0:0:0:0:1]",
    "http://[::1",
    "http://::1",
    "http://128.0.0.1",
    "http://10.0.0.1",
    "http://192.168.0.1",
    "ws://localhost",
    "file://localhost",
    "chrome-extension://localhost",
    "localhost",
    "http://localhοst",
]

LOOPBACK_PAGES = [
    "http://localhost",
    "https://localhost",
    "http://localhost:3000",
    "http://127.0.0.1:8420",
    "http://127.8.9.10",
    "http://[::1]",
    "http://[::1]:8420",
    "https://localhost:80",
]

LOOPBACK_HOSTS = [
    *["localhost", "localhost:8420", "LocalHost:8420", "127.0.0.1", LOCAL, "127.0.0.2:1"],
    *["[::1]", "[::1]:8420", "[0:0:0:0:0:0:0:1]:8420"],
]
FOREIGN_NAMES = [
    *["evil.example", "evil.example:8420", "localhost.evil.example", "127.0.0.1.evil.example"],
    *["app.localhost", "localhost.", "", " ", "localhost, evil.example", "localhost:8420:1"],
    *["evil.example/localhost", "user@localhost", "localhost:", "localhost:999999", "::1"],
    *["127.1", "2130706433", "0x7f000001", "[::1", "[localhost]", "localhοst", "localhost\n"],
]
FOREIGN_ADDRESSES = ["0.0.0.0", "0.0.0.0:8420", "10.1.2.3:8420", "[::]", "[2001:db8::1]:8420"]


# With authentication: exactly the list


@pytest.mark.parametrize("host", [None, LOCAL, "evil.example", "app.example.com"])
def test_asked_for_keys_the_list_decides_whatever_the_host(host: str | None) -> None:
    assert CLOSED.allows(None, host), "programs send no Origin"
    assert CLOSED.allows(APP, host)
    assert CLOSED.allows("http://localhost:3000", host)
    assert CLOSED.allows("capacitor://localhost", host)


@pytest.mark.parametrize("origin", [*TRICKS, *LOCAL_TRICKS, "http://localhost", "http://127.0.0.1"])
def test_asked_for_keys_nothing_else_counts(origin: str) -> None:
    assert not CLOSED.allows(origin, LOCAL)
    assert not CLOSED.allows(origin, "app.example.com")


def test_asked_for_keys_an_empty_list_lets_no_page_in() -> None:
    policy = OriginPolicy(lambda: True)
    assert policy.allows(None, "queue.example")
    assert not policy.allows("http://localhost", LOCAL)
    assert not policy.allows("null", LOCAL)


# Without: this machine


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_open_this_machine_is_enough(host: str) -> None:
    assert OPEN.allows(None, host)
    for origin in LOOPBACK_PAGES:
        assert OPEN.allows(origin, host)


@pytest.mark.parametrize("origin", [APP, *TRICKS, *LOCAL_TRICKS])
def test_open_no_other_page(origin: str) -> None:
    assert not OPEN.allows(origin, LOCAL)


@pytest.mark.parametrize("host", [*FOREIGN_NAMES, *FOREIGN_ADDRESSES])
def test_open_no_other_name_not_even_without_an_origin(host: str) -> None:
    assert not OPEN.allows(None, host), "a page whose name was made to lead here"
    assert not OPEN.allows("http://localhost", host)


def test_open_a_request_without_any_host_is_no_browsers() -> None:
    assert OPEN.allows(None, None)
    assert not OPEN.allows("http://localhost", None)


# Without, and reached by others on purpose


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, *FOREIGN_ADDRESSES, "queue.lan", "QUEUE.lan:80"])
def test_insecure_addresses_and_listed_names_are_enough(host: str) -> None:
    assert INSECURE.allows(None, host)
    assert INSECURE.allows(APP, host)
    assert INSECURE.allows("http://localhost:3000", host)


@pytest.mark.parametrize("host", FOREIGN_NAMES)
def test_insecure_other_names_may_be_rebound(host: str) -> None:
    assert not INSECURE.allows(None, host)


@pytest.mark.parametrize("origin", [*TRICKS, *LOCAL_TRICKS, "http://queue.lan", "http://10.1.2.3"])
def test_insecure_no_other_page(origin: str) -> None:
    assert not INSECURE.allows(origin, LOCAL)


def test_it_follows_when_keys_begin_to_be_asked_for() -> None:
    asked = False
    policy = OriginPolicy(lambda: asked, [APP])
    assert policy.allows("http://localhost", LOCAL)
    assert not policy.allows(APP, LOCAL)
    asked = True
    assert not policy.allows("http://localhost", LOCAL)
    assert policy.allows(APP, LOCAL)


# The lists


@pytest.mark.parametrize(
    "origin",
    [APP, "http://localhost:3000", "https://a.example:8443", "http://[::1]:3000", "tauri://x"],
)
def test_origins_that_browsers_send(origin: str) -> None:
    assert check_origin(origin) == origin


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        ("https://app.example.com/", "did you mean 'https://app.example.com'"),
        ("https://app.example.com/path", "did you mean 'https://app.example.com'"),
        ("HTTPS://App.Example.com", "did you mean 'https://app.example.com'"),
        ("https://App.Example.com:443/", "did you mean 'https://app.example.com'"),
        ("http://[::1]:3000/x", r"did you mean 'http://\[::1\]:3000'"),
        ("https://app.example.com:443", "write 'https://app.example.com'"),
        ("http://app.example.com:80", "write 'http://app.example.com'"),
        ("null", "no Origin"),
        ("*", "no Origin"),
        ("https://*.example.com", "no Origin"),
        ("app.example.com", "no Origin"),
        ("", "no Origin"),
        ("https://", "no Origin"),
        ("https://a:b", "no Origin"),
        ("https://[::1", "no Origin"),
    ],
)
def test_origins_that_could_never_match_are_refused_at_the_start(origin: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        OriginPolicy(lambda: True, [origin])


def test_hosts_are_names_without_scheme_and_port() -> None:
    assert check_host("Queue.LAN") == "queue.lan"
    for wrong in ("", "queue.lan:80", "http://queue.lan", "queue.lan.", "*", ".lan", "a b"):
        with pytest.raises(ConfigurationError, match="host name"):
            check_host(wrong)


def test_loopback() -> None:
    assert is_loopback("127.255.255.254")
    assert not is_loopback("126.255.255.255")
