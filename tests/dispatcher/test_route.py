from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.queues.route import mark_prefix, marked_shard, shard_of
from pushlane_storage.message import Message


def never() -> float:
    raise AssertionError("nothing here is left to chance")


def route(shards: int = 8, chance: float = 0.0, **fields: str) -> int:
    return shard_of(Message(b"", 0, **fields), shards, lambda: chance)  # type: ignore[arg-type]


def test_one_shard_needs_no_thought() -> None:
    assert shard_of(Message(b"", 0, key="k"), 1, never) == 0


def test_the_key_comes_first_then_dedup_then_producer_then_chance() -> None:
    by_key, by_dedup, by_producer = (
        route(key="a"),
        route(dedup="b"),
        route(producer="c"),
    )
    assert len({by_key, by_dedup, by_producer}) == 3  # else this test would show nothing
    assert route(key="a", dedup="b", producer="c") == by_key
    assert route(dedup="b", producer="c") == by_dedup
    assert route(producer="c") == by_producer
    assert [route(chance=chance) for chance in (0.0, 0.5, 0.999)] == [0, 4, 7]


def test_an_empty_key_is_a_key() -> None:
    assert shard_of(Message(b"", 0, key="", dedup="b"), 8, never) == route(key="")


def test_the_hash_is_part_of_the_stored_format() -> None:
    keys = ("a", "b", "order-1", "klíč 🔑", "", "\ud800")
    assert [route(256, key=key) for key in keys] == [47, 117, 61, 138, 180, 104]


@given(st.text(), st.integers(1, 256))
def test_every_key_has_one_shard(key: str, shards: int) -> None:
    number = shard_of(Message(b"", 0, key=key), shards, never)
    assert 0 <= number < shards
    assert shard_of(Message(b"x", 1, key=key), shards, never) == number


def test_keys_spread() -> None:
    counts = Counter(route(key=f"key-{number}") for number in range(8_000))
    assert min(counts.values()) > 800


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40), st.integers(0, 255)
)
def test_a_receipt_says_its_shard(secret: str, shard: int) -> None:
    assert marked_shard(mark_prefix(secret, shard)) == shard


def test_one_of_an_older_server_and_a_forged_one_do_not() -> None:
    for prefix in ("feedfeedfeedfeed", "p~", "p~x", "p~-1", "~", "p~1_0", "p~ffffffffffffffffffff"):
        assert marked_shard(prefix) is None
