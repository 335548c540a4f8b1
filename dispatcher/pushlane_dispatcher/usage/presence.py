"""Who is connected, and for how long all of them together were, tenant by tenant."""

from __future__ import annotations

from collections.abc import Iterator


class Present:
    __slots__ = ("count", "ms", "since")

    def __init__(self, since: int) -> None:
        self.count = 0
        self.ms = 0
        self.since = since

    def advance(self, now: int) -> None:
        self.ms += self.count * (now - self.since)
        self.since = now


class Presence:
    def __init__(self) -> None:
        self._tenants: dict[str, Present] = {}

    def came(self, tenant: str, now: int) -> None:
        present = self._tenants.setdefault(tenant, Present(now))
        present.advance(now)
        present.count += 1

    def left(self, tenant: str, now: int) -> None:
        present = self._tenants[tenant]
        present.advance(now)
        present.count -= 1

    def take(self, now: int) -> Iterator[tuple[str, int]]:
        """Milliseconds since the last time, of those who had any."""
        for tenant, present in list(self._tenants.items()):
            present.advance(now)
            if present.ms:
                yield tenant, present.ms
                present.ms = 0
            if not present.count:
                del self._tenants[tenant]
