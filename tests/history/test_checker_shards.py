"""Owners of shards: epochs of different shards say nothing of each other."""

from pushlane_history.event import Crash, Credit, Ended, LeaseLost, Open, Subscribe, shard_of_id
from pushlane_storage.seq import make_id
from tests.history.tools import (
    E1,
    E2,
    History,
    broken,
    flat,
    grant,
    published,
    settle,
)

A, B = make_id("q", 0, 4, 1), make_id("q", 1, 4, 2)
SHARD_A, SHARD_B = shard_of_id(A), shard_of_id(B)
OPEN: History = [Open(0, "n1", 1, SHARD_A), Open(0, "n2", 1, SHARD_B)]
BOTH: History = [*published(1, id=A), *published(2, id=B)]
AHEAD = Open(0, "n3", 2, SHARD_B)


def test_an_epoch_belongs_to_a_shard() -> None:
    history = flat(OPEN, AHEAD, BOTH, grant(2, "r2", E2 + 1, id=B))
    assert not broken(history)
    assert broken([*history, grant(1, "r1", E2 + 1, id=A)]) == {"fence"}


def test_another_shards_owner_excuses_no_grant_after_an_end() -> None:
    """Epoch 1 is the newest of its shard, whatever was opened elsewhere."""
    ended = Ended(0, "q", A, "dropped")
    history = flat(OPEN, AHEAD, BOTH, ended, grant(1, "r1", E1 + 1, id=A))
    assert "grant_after_end" in broken(history)


def test_a_shards_own_new_owner_makes_the_old_one_a_zombie() -> None:
    ended = Ended(0, "q", B, "dropped")
    after = [ended, grant(2, "r1", E1 + 1, id=B)]
    zombie = broken(flat(OPEN, AHEAD, BOTH, after))
    assert "grant_after_end" not in zombie
    dead = broken(flat(OPEN, Crash(0, "n2"), AHEAD, BOTH, after))
    assert "grant_after_end" in dead


def test_a_new_owner_of_one_shard_knows_no_permits_of_it_and_all_others_count() -> None:
    sub = [Subscribe(0, "s", "S", "q", 1), grant(1, "r1", E1 + 1, id=A, sub="s")]
    again = grant(2, "r2", E2 + 1, id=B, sub="s")
    assert broken(flat(OPEN, BOTH, sub, AHEAD, again)) == {"credit"}
    known = [Credit(0, "s", 1), Open(0, "n3", 2, SHARD_A)]
    assert not broken(flat(OPEN, BOTH, sub, known, grant(2, "r2", E1 + 1, id=B, sub="s")))


def test_a_lease_that_was_called_lost_is_good_again_with_a_new_owner_of_its_shard() -> None:
    lost = [grant(1, "r1", E1 + 1, id=A), LeaseLost(0, "r1")]
    ack = settle(9, "r1")
    assert "stale_settle" in broken(flat(OPEN, BOTH, lost, AHEAD, ack))
    assert not broken(flat(OPEN, BOTH, lost, Open(0, "n3", 2, SHARD_A), ack))


def test_who_opens_everything_opens_every_shard() -> None:
    history = flat(OPEN, BOTH, Open(0, "n3", 5), grant(1, "r1", (5 << 20) + 1, id=A))
    assert not broken(history)
