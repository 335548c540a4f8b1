"""Hourly: one line an hour of each name, which says how many it stands for."""

from pushlane_dispatcher.shard.hourly import HOUR_MS, Hourly


def test_the_first_is_told_at_once_and_the_others_with_the_next_hour() -> None:
    hourly = Hourly()
    assert hourly.add("a", 3, 0) == 3
    assert hourly.add("a", 2, 1) == 0
    assert hourly.add("b", 1, 2) == 1
    assert hourly.add("a", 4, HOUR_MS - 1) == 0
    assert hourly.add("a", 1, HOUR_MS) == 7
    assert hourly.add("a", 1, HOUR_MS + 1) == 0


def test_it_remembers_no_more_than_so_many_names() -> None:
    hourly = Hourly(names=2)
    assert [hourly.add(name, 1, 0) for name in "abc"] == [1, 1, 1]
    assert hourly.add("c", 1, 1) == 0
    assert hourly.add("a", 1, 1) == 1, "it was forgotten"
