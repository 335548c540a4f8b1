"""Names of keys; test_cache.py asks Redis where they belong."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.redis.keys import epoch_key, mark_key, queue_key, runs_key


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
    assert (queue_key(one, first) == queue_key(other, second)) == same


def test_names_that_the_server_makes_are_readable() -> None:
    assert runs_key("0f3a/2") == "{pl/0f3a/2}:runs"
    assert mark_key("0f3a/2", "order 7") == "{pl/0f3a/2}:dedup:order%207"
    assert queue_key("default", "orders") == "{pl/queue/default/orders}:row"
