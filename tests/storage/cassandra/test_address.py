"""URLs of Cassandra stores."""

from __future__ import annotations

import pytest

from pushlane_storage.cassandra.address import Address, parse
from pushlane_storage.url import BadStoreUrl, open_store, shown
from tests.held import held


@pytest.mark.parametrize(
    ("rest", "address"),
    [
        ("//host/pushlane", Address(hosts=["host"], keyspace="pushlane")),
        (
            "//h1,h2.example.org,10.0.0.3:9142/p_1",
            Address(hosts=["h1", "h2.example.org", "10.0.0.3"], port=9142, keyspace="p_1"),
        ),
        ("//[::1]/p", Address(hosts=["::1"], keyspace="p")),
        ("//[fe80::1],[::1]:1/p", Address(hosts=["fe80::1", "::1"], port=1, keyspace="p")),
        (
            "//us%40er:p%3Aw:x@host/p",
            Address(hosts=["host"], keyspace="p", user="us@er", password="p:w:x"),
        ),
        ("//h/p?replication=3", Address(hosts=["h"], keyspace="p", replication=3)),
        (
            "//h/p?replication=dc1:3,dc2:2&dc=dc2&migrate=off",
            Address(
                hosts=["h"],
                keyspace="p",
                replication={"dc1": 3, "dc2": 2},
                dc="dc2",
                migrate=False,
            ),
        ),
        ("//h/p?tls=on&migrate=on", Address(hosts=["h"], keyspace="p", tls=True)),
        (
            "//h/p?tls=/etc/ca.pem&tls_cert=c.pem&tls_key=k.pem",
            Address(
                hosts=["h"], keyspace="p", tls="/etc/ca.pem", tls_cert="c.pem", tls_key="k.pem"
            ),
        ),
    ],
)
def test_good_ones(rest: str, address: Address) -> None:
    assert parse(rest) == address


def test_quorums_are_local_where_a_data_centre_is_named() -> None:
    assert not parse("//h/p?replication=3").is_local
    assert parse("//h/p?dc=dc1").is_local


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("cassandra:", "two slashes"),
        ("cassandra:host/p", "two slashes"),
        ("cassandra://host", "a keyspace comes after"),
        ("cassandra://host/", "a keyspace comes after"),
        ("cassandra:///p", "a host is missing"),
        ("cassandra://a,,b/p", "a host is missing"),
        ("cassandra://host/Push", "is not a keyspace"),
        ("cassandra://host/1p", "is not a keyspace"),
        ("cassandra://host/a/b", "is not a keyspace"),
        (f"cassandra://host/{'p' * 49}", "is not a keyspace"),
        ("cassandra://host:/p", "'' is not a port"),
        ("cassandra://host:0/p", "'0' is not a port"),
        ("cassandra://host:65536/p", "is not a port"),
        ("cassandra://host:٣/p", "is not a port"),
        ("cassandra://a:1,b:2/p", "the port, the same for all, comes after the last"),
        ("cassandra://ho st/p", "'ho st' is not a host"),
        ("cassandra://user@host/p", "credentials are user:password"),
        ("cassandra://:pw@host/p", "credentials are user:password"),
        ("cassandra://h/p?x", "options are name=value"),
        ("cassandra://h/p?colour=red", "unknown option 'colour'"),
        ("cassandra://h/p?dc=a&dc=b", "dc is there twice"),
        ("cassandra://h/p?dc=", "dc has no value"),
        ("cassandra://h/p?dc=a%27b", "is not a data centre"),
        ("cassandra://h/p?replication=0", "a number, or dc1:3,dc2:3"),
        ("cassandra://h/p?replication=dc1", "a number, or dc1:3,dc2:3"),
        ("cassandra://h/p?replication=a:1,b:1", "say with dc=NAME"),
        ("cassandra://h/p?replication=a:1,b:1&dc=c", "nothing for the data centre c"),
        ("cassandra://h/p?migrate=no", "on or off"),
        ("cassandra://h/p?tls=on&tls_key=k", "come together"),
        ("cassandra://h/p?tls_cert=c&tls_key=k", "needs tls"),
    ],
)
async def test_bad_ones_say_why(url: str, reason: str) -> None:
    with pytest.raises(BadStoreUrl, match=reason) as bad:
        await held(open_store(url))
    assert "cassandra://HOST/KEYSPACE" in str(bad.value)
    assert bad.value.url == url


@pytest.mark.parametrize(
    "url",
    ["cassandra://me:geheim@host/P", "cassandra://me:ge@he:im@host/P", "cassandra://me:g/h@host"],
)
async def test_no_error_shows_the_password(url: str) -> None:
    with pytest.raises(BadStoreUrl) as bad:
        await held(open_store(url))
    for part in ("geheim", "he:im", "g/h"):
        assert part not in str(bad.value)
    assert shown("sqlite:./a:b@c") == "sqlite:./a:b@c"
