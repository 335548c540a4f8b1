"""URLs of Redis."""

from typing import Any

import pytest

from pushlane_leases.redis.cluster import Cluster
from pushlane_leases.redis.connection import Connection
from pushlane_leases.redis.url import RedisLimits, make_pool, open_connection, shown
from pushlane_leases.url import BadLeaseUrl

LIMITS = RedisLimits(connect_ms=100, answer_ms=200)


def test_a_whole_url() -> None:
    pool = make_pool("redis://me:p%40ss@example.org:7000/3?client_name=pushlane", LIMITS)
    wire: Any = pool.make_connection()
    assert (wire.host, wire.port, wire.db) == ("example.org", 7000, 3)
    assert (wire.username, wire.password, wire.client_name) == ("me", "p@ss", "pushlane")
    assert (wire.socket_connect_timeout, wire.socket_timeout) == (0.1, 0.2)
    assert wire.retry.get_retries() == 0


def test_what_need_not_be_said() -> None:
    wire: Any = make_pool("redis://example.org", LIMITS).make_connection()
    assert (wire.port, wire.db, wire.password) == (6379, 0, None)


def test_tls() -> None:
    pool = make_pool("rediss://example.org?ssl_ca_certs=/ca.pem&ssl_check_hostname=true", LIMITS)
    assert pool.connection_class.__name__ == "SSLConnection"
    wire: Any = pool.make_connection()
    assert wire.ca_certs == "/ca.pem"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://", "HOST"),
        ("http://example.org", "redis://"),
        ("redis://example.org/zero", "'/zero' is not a database number"),
        ("redis://example.org:port", "[Pp]ort"),
        ("redis://example.org:70000", "[Pp]ort"),
        ("redis://example.org?db=one", "Invalid value for 'db'"),
        ("redis://example.org?decode_responses=1", "unknown option 'decode_responses', known are"),
        ("redis://example.org?ssl_ca_certs=/ca.pem", "unknown option 'ssl_ca_certs'"),
        ("rediss://example.org?ssl_cert_reqs=perhaps", "perhaps"),
        ("redis://example.org?cluster=yes", "cluster is true or false"),
    ],
)
def test_a_bad_url_says_why(url: str, reason: str) -> None:
    with pytest.raises(BadLeaseUrl, match=reason):
        make_pool(url, LIMITS)


def test_no_error_shows_a_password() -> None:
    with pytest.raises(BadLeaseUrl) as caught:
        make_pool("redis://me:secret@example.org/x?password=secret", LIMITS)
    assert "secret" not in str(caught.value)
    assert shown("redis://me:secret@example.org/1?password=x") == "redis://example.org/1"
    assert shown("redis://:sec?ret@example.org/1") == "redis://example.org/1"


def test_a_cluster() -> None:
    for options in ("cluster=true", "client_name=x&cluster=true", "cluster=true&client_name=x"):
        assert isinstance(open_connection(f"redis://example.org?{options}", LIMITS), Cluster)
    for options in ("", "?cluster=false"):
        assert isinstance(open_connection(f"redis://example.org{options}", LIMITS), Connection)
    with pytest.raises(BadLeaseUrl, match="a cluster has database 0 only"):
        open_connection("redis://example.org/1?cluster=true", LIMITS)
