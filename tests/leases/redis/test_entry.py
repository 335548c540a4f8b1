"""Runs and values as they stand in Redis."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.redis.entry import (
    CLAIM,
    DROP_SESSION,
    GRANT,
    OVERWRITE,
    PUT_SESSION,
    RELEASE,
    REMEMBER,
    SCRIPTS,
    TAKE_SESSION,
    decode_run,
    decode_value,
    encode_run,
    encode_value,
    epoch_key,
    mark_key,
    number,
    runs_key,
    session_key,
)
from tests.leases.samples import NOW, run
from tools.services.redis import Redis

numbers = st.integers(0, (1 << 53) - 1)


@given(st.text(), numbers, st.integers(1, 10_000), st.integers(0, (1 << 63) - 1), st.text())
def test_a_run_comes_back(prefix: str, n: int, count: int, seq: int, session: str) -> None:
    whole = run(n, count, prefix=prefix, seq=seq, session=session, started=True)
    assert decode_run(encode_run(whole)) == whole


def test_a_part_of_a_run_counts_its_seqs_on() -> None:
    """As the scripts cut it: other numbers in front of the same rest."""
    big = 8_191 << 40  # past what Lua could count exactly
    whole = encode_run(run(10, 5, seq=big + 7))
    part = whole.replace(number(10).encode(), number(12).encode(), 1)
    part = part.replace(number(14).encode(), number(13).encode(), 1)
    assert decode_run(part) == run(12, 2, seq=big + 9)


def test_runs_sort_by_their_numbers() -> None:
    firsts = [0, 9, 10, 99, 1_000, 1 << 40, (1 << 53) - 1]
    entries = [encode_run(run(n)) for n in firsts]
    assert sorted(entries) == entries


def test_a_prefix_has_no_space() -> None:
    assert encode_run(run(1, prefix="a b ")).startswith(b"a%20b%20 ")


def test_a_value_is_good_until_its_time() -> None:
    entry = encode_value(b"\x00 value", NOW)
    assert decode_value(entry, NOW - 1) == b"\x00 value"
    assert decode_value(entry, NOW) is None
    assert decode_value(None, NOW) is None


def tag(key: str) -> str:
    """The part between the first brace and the next closing one, as Redis Cluster has it."""
    return key.partition("{")[2].partition("}")[0]


@given(st.text(), st.text())
def test_all_keys_of_a_shard_have_its_tag(shard: str, dedup: str) -> None:
    keys = {epoch_key(shard), runs_key(shard), mark_key(shard, dedup)}
    [found] = set(map(tag, keys))
    assert found
    assert len(keys) == 3


@given(st.text(), st.text(), st.text(), st.text())
def test_keys_differ_where_names_do(one: str, other: str, first: str, second: str) -> None:
    assert (epoch_key(one) == epoch_key(other)) == (one == other)
    same = (one, first) == (other, second)
    assert (mark_key(one, first) == mark_key(other, second)) == same


def test_names_that_the_server_makes_are_readable() -> None:
    assert runs_key("0f3a/2") == "{pl/0f3a/2}:runs"
    assert mark_key("0f3a/2", "order 7") == "{pl/0f3a/2}:dedup:order%207"


def test_a_session_s_id_is_not_in_its_key() -> None:
    assert session_key("abc") == session_key("abc") != session_key("abd")
    assert "abc" not in session_key("abc")


def test_redis_knows_them_by_the_same_names(server: Redis) -> None:
    with server.client() as client:
        for sha, script in SCRIPTS.items():
            loaded = client.script_load(script.text)
            assert loaded in (sha, sha.encode())


def test_every_script_compares_the_epoch_first() -> None:
    others = {CLAIM, GRANT, RELEASE, REMEMBER}
    sessions = {PUT_SESSION, TAKE_SESSION, DROP_SESSION}  # no shard's owner calls these
    assert set(SCRIPTS.values()) == {*others, *sessions, OVERWRITE}
    for script in others:
        body = script.text.split("\nlocal owner = newer_owner()\n")
        assert len(body) == 2
        assert "redis.call" not in body[0].rsplit("\nend\n", 1)[1]
