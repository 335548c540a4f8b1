"""One connection, on a real Redis."""

from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.connection import Connection
from pushlane_leases.redis.entry import RELEASE
from pushlane_leases.redis.url import RedisLimits, make_pool
from tools.services.redis import Redis

CALL = ("EVALSHA", RELEASE.sha, 2, "{a}:e", "{a}:r", 1, 1_000)


@pytest.fixture
def connection(server: Redis) -> Iterator[Connection]:
    connection = Connection(make_pool(server.url, RedisLimits(connect_ms=300, answer_ms=300)))
    yield connection
    connection.close()


def test_answers_in_the_order_of_the_commands(connection: Connection) -> None:
    commands = [("SET", "a", b"\x00\xff"), ("GET", "a"), ("GET", "b"), ("INCR", "c")]
    assert connection.exchange(commands) == [b"OK", b"\x00\xff", None, 1]


def test_an_error_stands_in_its_place(connection: Connection) -> None:
    found = connection.exchange([("SET", "a", "x"), ("INCR", "a"), ("GET", "a")])
    assert isinstance(found[1], ResponseError)
    assert found[::2] == [b"OK", b"x"]


def test_scripts_are_loaded_when_redis_does_not_know_them(
    connection: Connection, server: Redis
) -> None:
    with server.client() as client:
        for _ in range(2):
            client.delete("{a}:e")
            found = connection.exchange([("PING",), CALL, ("PING",), CALL])
            assert found == [b"PONG", b"fresh", b"PONG", None]
            client.script_flush()


def test_a_restart_between_two_calls_is_not_noticed(connection: Connection, server: Redis) -> None:
    assert connection.exchange([("PING",)]) == [b"PONG"]
    server.kill()
    server.start()
    assert connection.exchange([CALL]) == [b"fresh"]


def test_nobody_there(connection: Connection, server: Redis) -> None:
    server.kill()
    for _ in range(2):
        with pytest.raises(LeaseCacheError, match=r"ConnectionError: .*refused"):
            connection.exchange([("PING",)])
    server.start()
    assert connection.exchange([("PING",)]) == [b"PONG"]


def test_late_answers_are_nobody_s(connection: Connection, server: Redis) -> None:
    connection.exchange([("SET", "a", "1"), ("SET", "b", "2")])
    server.pause()
    with pytest.raises(LeaseCacheError, match="TimeoutError"):
        connection.exchange([("GET", "a")])
    server.resume()
    assert connection.exchange([("GET", "b")]) == [b"2"]


def test_a_password(server: Redis) -> None:
    with server.client() as client:
        client.config_set("requirepass", "secret")
    pools = [
        make_pool(url, RedisLimits())
        for url in (server.url, server.url.replace("://", "://:secret@"))
    ]
    without, right = map(Connection, pools)
    try:
        with pytest.raises(LeaseCacheError, match="Authentication required"):
            without.exchange([("PING",)])
        assert right.exchange([("PING",)]) == [b"PONG"]
    finally:
        without.close()
        right.close()
