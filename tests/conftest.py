"""Settings that hold for every test."""

from hypothesis import settings

from tests.services import cassandra_ring_service, cassandra_service, redis_service

__all__ = ["cassandra_ring_service", "cassandra_service", "redis_service"]

# No deadline: the machines that run these tests are shared, and a slow moment is no failure.
settings.register_profile("pushlane", deadline=None, print_blob=True)
settings.load_profile("pushlane")
