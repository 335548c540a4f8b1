"""Settings that hold for every test."""

import signal

from hypothesis import settings

from tests.services import cassandra_ring_service, cassandra_service, redis_service

__all__ = ["cassandra_ring_service", "cassandra_service", "redis_service"]

# No deadline: the machines that run these tests are shared, and a slow moment is no failure.
settings.register_profile("pushlane", deadline=None, print_blob=True)
settings.load_profile("pushlane")

# Started in the background without job control (`nohup make test &`), we inherit that interrupts
# are ignored, and so would all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
