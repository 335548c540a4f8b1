"""A circuit breaker: after some failures in a row, leave a service alone for a while.

Closed, every call may go. Open, none may until the rest is over; then one call tries, and decides.
"""


class Breaker:
    __slots__ = ("_failures", "_limit", "_open_until", "_rest_ms", "_trying", "trips")

    def __init__(self, failures: int, rest_ms: int) -> None:
        self._limit = failures
        self._rest_ms = rest_ms
        self._failures = 0
        self._open_until: int | None = None
        self._trying = False
        self.trips = 0
        """How often it opened."""

    @property
    def open(self) -> bool:
        return self._open_until is not None

    def allows(self, now: int) -> bool:
        """Whether a call may go. Whoever is allowed says how it went."""
        if self._open_until is None:
            return True
        if self._trying or now < self._open_until:
            return False
        self._trying = True
        return True

    def succeeded(self) -> bool:
        """A call went well. True: the service is back."""
        back = self._open_until is not None
        self._failures, self._open_until, self._trying = 0, None, False
        return back

    def failed(self, now: int) -> bool:
        """A call failed. True: that was once too often, the breaker opens."""
        self._failures += 1
        opens = self._open_until is None and self._failures >= self._limit
        if opens or self._trying:
            self._open_until = now + self._rest_ms
            self._trying = False
        self.trips += opens
        return opens

    def gave_up(self) -> None:
        """A call was cancelled from outside: it says nothing, and the next one may try."""
        self._trying = False
