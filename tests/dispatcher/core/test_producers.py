"""Many producers: what they cost is bounded, and none is forgotten inside the window."""

import pytest

from pushlane.wire.errors import Throttled
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.numbers import SOMEWHERE, Numbers, Place, Run
from pushlane_dispatcher.core.producers import Producers
from pushlane_storage.message import TRANSFER, owned_producer, owner_of
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig

WINDOW = 1_000


def make(stored_before: int = 1 << 60, **bounds: int) -> Producers:
    return Producers(Bounds(**bounds), WINDOW, lambda _: stored_before)


def use(producers: Producers, name: str, number: int, at: int, seq: int = 0) -> bool:
    """Whether there was room."""
    found = producers.find(name, number, at)
    if found is None:
        producers.add(name, number, 1, LANE, seq or number, at)
    return not isinstance(found, Throttled)


def test_the_one_that_was_silent_longest_makes_room() -> None:
    producers = make(producers=3)
    for at, name in enumerate(["a", "b", "c", "a"]):
        assert use(producers, name, at + 1, at)
    assert not use(producers, "d", 1, WINDOW)
    assert use(producers, "d", 1, WINDOW + 1)
    assert [name for name, _ in producers.by_last_use()] == ["d", "a", "c"]
    assert producers.find("a", 1, WINDOW) == Place(LANE, 1)


@pytest.mark.parametrize("name", ["a", f"{TRANSFER}a"])
def test_numbers_behind_the_last_are_new(name: str) -> None:
    producers = make()
    assert producers.all_new(name, 1, 0)
    use(producers, name, 5, 0)
    assert not producers.all_new(name, 5, 0)
    assert producers.all_new(name, 6, 0)


def test_at_the_bound_it_is_said_which_and_for_how_long() -> None:
    producers = make(producers=1)
    use(producers, "a", 1, 0)
    refused = producers.find("b", 1, 400)
    assert isinstance(refused, Throttled)
    assert (refused.limit, refused.retry_ms) == ("producers", 600)
    refused = producers.find("b", 1, 999)
    assert isinstance(refused, Throttled)
    assert refused.retry_ms == 100


def test_a_refusal_looks_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 short-lived producers, and one more: it costs the same as with ten."""
    producers = make(producers=10_000)
    for number in range(10_000):
        use(producers, f"p{number}", 1, 0)
    looked: list[Numbers] = []

    def has_pending(self: Producers, numbers: Numbers) -> bool:
        looked.append(numbers)
        return False

    monkeypatch.setattr(Producers, "_has_pending", has_pending)
    for number in range(1_000):
        assert not use(producers, f"q{number}", 1, WINDOW - 1)
    assert looked == []
    for number in range(1_000):
        assert use(producers, f"q{number}", 1, WINDOW)
    assert len(looked) <= 1_064
    assert len(producers) <= 10_000


def test_short_lived_producers_don_t_lock_out_others() -> None:
    rig = Rig()
    for number in range(20_000):
        assert rig.shard.dedup.producers.all_new(f"p{number}", 1, rig.now)
        rig.shard.dedup.producers.add(f"p{number}", 1, 1, LANE, number, rig.now)
    assert rig.publish("x", producer="one more", producer_seq=1).failed == {}


def test_a_silent_producer_is_remembered_for_a_day_while_there_is_room() -> None:
    producers = make()
    use(producers, "a", 1, 0)
    use(producers, "b", 1, TRANSFER_WINDOW_MS - 1)
    assert producers.find("a", 1, TRANSFER_WINDOW_MS - 1) == Place(LANE, 1)
    use(producers, "c", 1, TRANSFER_WINDOW_MS)
    assert producers.get("a") is None
    assert producers.get("b") is not None


def test_numbers_of_transfers_are_remembered_for_a_day_whoever_wants_room() -> None:
    producers = make(producers=1)
    name = TRANSFER + "q/0"
    use(producers, name, 1, 0)
    assert not use(producers, "a", 1, 2 * WINDOW)
    assert use(producers, name, 2, 2 * WINDOW)
    assert use(producers, "a", 1, TRANSFER_WINDOW_MS + 2 * WINDOW)
    assert producers.get(name) is None


def test_a_producer_with_something_pending_is_not_forgotten() -> None:
    producers = make(stored_before=5, producers=2)
    use(producers, "a", 1, 0, seq=7)
    use(producers, "b", 1, 0, seq=1)
    assert use(producers, "c", 1, WINDOW, seq=2)
    assert producers.get("a") is not None
    assert producers.get("b") is None


def test_runs_are_bounded_in_all() -> None:
    """Producers that publish by turns: every message is a run."""
    producers = make(producer_runs=400, producer_seqs=200)
    seq = 0
    for number in range(1, 1_001):
        for name in "abcd":
            seq += 1
            assert use(producers, name, number, 0, seq)
        assert producers.runs <= 400
    assert producers.runs == sum(len(numbers) for _, numbers in producers.by_last_use())
    for name in "abcd":
        assert producers.find(name, 1_000, 0) not in (None, SOMEWHERE)
        assert producers.find(name, 810, 0) is SOMEWHERE
        assert producers.find(name, 1_001, 0) is None


def test_runs_with_gaps_are_throttled_at_the_bound() -> None:
    producers = make(producer_runs=100)
    for number in range(1, 101):
        assert use(producers, "a", 2 * number, 0)
    refused = producers.find("a", 300, 0)
    assert isinstance(refused, Throttled)
    assert refused.limit == "producer_runs"
    assert not producers.all_new("a", 300, 0)
    assert not use(producers, "b", 1, 0), "a new one neither"
    assert producers.find("a", 2, 0) is SOMEWHERE, "known ones are answered"
    assert use(producers, "b", 1, WINDOW), "until those are silent"


def test_a_thousand_refusals_look_for_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = make(producer_runs=100)
    for number in range(1, 101):
        use(producers, "a", 2 * number, 0)
    looked: list[Run] = []

    def stored(self: Producers, run: Run) -> int:
        looked.append(run)
        return run.count

    monkeypatch.setattr(Producers, "stored", stored)
    for number in range(1_000):
        assert not use(producers, "a", 1_001 + 2 * number, 0)
    assert len(looked) <= 100


def test_a_refused_batch_gives_its_runs_back() -> None:
    producers = make()
    producers.add("a", 1, 10, LANE, 100, 0)
    producers.remove("a", 5)
    assert producers.runs == 2
    producers.remove("a", 1, 10)
    assert producers.runs == 0
    producers.remove("b", 1)
    assert len(producers) == 1


def test_the_window_is_the_queue_s() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), Bounds(producers=1))
    rig.publish("x", producer="a", producer_seq=1)
    rig.wait(1_500)
    assert isinstance(rig.publish("x", producer="b", producer_seq=1).failed[0], Throttled)
    rig.configure(dedup_window_ms=1_000)
    assert rig.publish("x", producer="b", producer_seq=1).failed == {}


def test_recovery_bears_as_many() -> None:
    producers = make(producers=10, producer_runs=60)
    for number in range(100):
        producers.restore_run(f"p{number}", 1, 1, LANE, number, -5_000 + number, 0)
    assert len(producers) <= 64
    for number in range(100):
        producers.restore_run("busy", number + 1, 1, LANE, 1_000 + 2 * number, 0, 0)
    assert producers.runs <= 60 + 64
    assert producers.find("busy", 100, 0) == Place(LANE, 1_198)
    assert producers.find("busy", 1, 0) is SOMEWHERE


# Shares


def mine(number: int, owner: str = "k1") -> str:
    return owned_producer(f"p:{number}", owner)


def test_a_name_says_whose_it_is() -> None:
    assert owner_of(mine(1)) == "k1"
    assert owned_producer("a", None) == "a"
    assert owner_of("a") == owner_of("key:k1:a") == owner_of(f"{TRANSFER}a/0") == ""


def limit_of(found: object) -> str | None:
    assert isinstance(found, Throttled)
    return found.limit


def test_one_owner_has_a_share_of_the_producers() -> None:
    producers = make(producers=10)
    assert [use(producers, mine(n), 1, n) for n in range(6)] == [True] * 5 + [False]
    assert limit_of(producers.find(mine(5), 1, 6)) == "producers_share"
    assert not producers.all_new(mine(5), 1, 6)
    assert use(producers, mine(0), 2, 7), "the old ones go on"
    assert all(use(producers, mine(n, "k2"), 1, 8) for n in range(5))
    assert limit_of(producers.find("a", 1, 9)) == "producers"


def test_a_share_is_had_again_when_the_window_is_over() -> None:
    producers = make(producers=10)
    for n in range(5):
        use(producers, mine(n), 1, 0)
    assert not use(producers, mine(5), 1, WINDOW - 1), "none is forgotten inside the window"
    assert use(producers, mine(5), 1, WINDOW + 1)
    assert len(producers) == 1


def test_the_share_is_known_after_a_restart() -> None:
    producers = make(producers=10)
    for n in range(5):
        producers.restore_run(mine(n), 1, 1, LANE, n, 0, 0)
    assert limit_of(producers.find(mine(5), 1, 1)) == "producers_share"


def test_one_owner_has_a_share_of_the_runs() -> None:
    producers = make(producer_runs=40)
    for n in range(20):  # every other number: nothing to coalesce
        assert use(producers, mine(n % 2), n // 2 * 2 + 1, 0)
    assert producers.runs == 20
    assert limit_of(producers.find(mine(0), 101, 1)) == "producer_runs_share"
    assert use(producers, mine(0, "k2"), 1, 1)
    assert use(producers, "a", 1, 1)
    producers.remove(mine(0), 1)
    assert use(producers, mine(0), 101, 1)


def test_an_owner_that_is_forgotten_costs_nothing() -> None:
    producers = make(producers=10)
    for n in range(5):
        use(producers, mine(n, f"k{n}"), 1, 0)
    producers.forget(TRANSFER_WINDOW_MS + 1)
    assert (len(producers), producers.runs) == (0, 0)
    assert not producers._names_of
    assert not producers._runs_of
