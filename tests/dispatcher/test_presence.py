"""Presence: the time of all connections of a tenant together."""

from pushlane_dispatcher.usage.presence import Presence


def test_time_adds_up() -> None:
    presence = Presence()
    presence.came("a", 1_000)
    presence.came("a", 1_500)
    presence.came("b", 1_500)
    assert dict(presence.take(2_000)) == {"a": 1_500, "b": 500}
    presence.left("b", 2_100)
    presence.left("a", 2_500)
    assert dict(presence.take(3_000)) == {"a": 1_500, "b": 100}
    presence.left("a", 3_000)
    assert dict(presence.take(4_000)) == {}
    assert presence._tenants == {}
