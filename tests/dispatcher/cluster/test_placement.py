"""Where slots belong: the same for everybody who sees the same nodes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.cluster.placement import Place, placed, to_give_up
from pushlane_storage.slot import SLOTS

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)


def places(*names: str) -> list[Place]:
    return [Place(name, f"process of {name}") for name in names]


def shares(there: list[Place]) -> Counter[str]:
    found = [placed(slot, there) for slot in range(SLOTS)]
    return Counter(place.name for place in found if place is not None)


@given(NAMES, st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(names: list[str], rng: Random) -> None:
    there = places(*names)
    mixed = rng.sample(there, len(there))
    assert all(placed(slot, there) == placed(slot, mixed) for slot in range(0, SLOTS, 17))


@given(NAMES, st.text(min_size=1, max_size=8))
def test_who_comes_takes_only_what_is_to_be_its_own(names: list[str], new: str) -> None:
    before, after = places(*names), [*places(*names), Place(new, "new")]
    for slot in range(0, SLOTS, 13):
        then, now = placed(slot, before), placed(slot, after)
        assert now == then or (now is not None and now.process == "new")


def test_nobody_there() -> None:
    assert placed(0, []) is None


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_shares_are_about_equal(count: int) -> None:
    found = shares(places(*(f"node-{n}" for n in range(count))))
    assert len(found) == count
    assert max(found.values()) < 1.6 * SLOTS / count
    assert min(found.values()) > 0.5 * SLOTS / count


def test_weights_decide_about_shares() -> None:
    there = [Place("small", "s", 50), Place("large", "l", 150), Place("none", "n", 0)]
    found = shares(there)
    assert found["none"] == 0
    assert 2 < found["large"] / found["small"] < 4.5


def test_a_node_that_starts_again_gets_back_what_it_had() -> None:
    before = places("a", "b", "c")
    after = [place._replace(process="again") if place.name == "b" else place for place in before]
    for slot in range(SLOTS):
        then, now = placed(slot, before), placed(slot, after)
        assert then is not None
        assert now is not None
        assert then.name == now.name


def test_what_belongs_elsewhere_is_given_up_a_few_at_a_time() -> None:
    there = places("a", "b")
    own = "process of a"
    mine = {slot for slot in range(SLOTS) if (its := placed(slot, there)) and its.process == own}
    held = {slot: 1_000 + slot for slot in range(SLOTS)}
    found = to_give_up(held, own, there, 100_000, 30_000, 8)
    others = [slot for slot in range(SLOTS) if slot not in mine]
    assert found == others[:8], "those held the longest go first"


def test_nothing_is_given_up_before_its_least_tenure() -> None:
    there = places("a", "b")
    held = dict.fromkeys(range(SLOTS), 50_000)
    assert to_give_up(held, "process of a", there, 79_999, 30_000, 8) == []
    assert to_give_up(held, "process of a", there, 80_000, 30_000, 8) != []


def test_without_nodes_nothing_is_given_up() -> None:
    assert to_give_up({1: 0}, "me", [], 1_000_000, 0, 8) == []
