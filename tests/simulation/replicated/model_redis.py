"""Redis as plain dicts: the commands that the lease cache sends, and what its Lua scripts do.

A test gives this and a real Redis the same commands and compares every answer, so that the two
can't drift apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from random import Random
from typing import Any

from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.entry import (
    CLAIM,
    DROP_SESSION,
    GRANT,
    OVERWRITE,
    PUT_SESSION,
    RELEASE,
    REMEMBER,
    TAKE_SESSION,
)

FOREVER = -1
FEW = 4
"""Runs that a grant looks at, whether they are over."""

Text = str | bytes | int


class ModelRedis:
    def __init__(self, now: Callable[[], int], rng: Random) -> None:
        """`now` answers milliseconds."""
        self._now = now
        self._rng = rng
        self.values: dict[bytes, bytes] = {}
        self.sets: dict[bytes, list[bytes]] = {}
        """Sorted sets whose scores are all 0: members in the order of their bytes."""
        self.until: dict[bytes, int] = {}
        self.calls = 0
        """Scripts that were run: what may have changed something."""
        self._scripts = {
            CLAIM.sha: self._claim,
            OVERWRITE.sha: self._overwrite,
            GRANT.sha: self._grant,
            RELEASE.sha: self._release,
            REMEMBER.sha: self._remember,
            PUT_SESSION.sha: self._put_session,
            TAKE_SESSION.sha: self._take_session,
            DROP_SESSION.sha: self._drop_session,
        }

    def execute(self, command: Command) -> Any:
        """The answer to a command."""
        name, *args = command
        if name == "EVALSHA":
            self.calls += 1
            count = int(args[1])
            keys, rest = args[2 : 2 + count], args[2 + count :]
            return self._scripts[str(args[0])](list(map(raw, keys)), list(map(raw, rest)))
        if name == "MGET":
            return [self._get(raw(key)) for key in args]
        if name == "GET":
            return self._get(raw(args[0]))
        if name == "SET":
            key, value, px, ttl = args
            assert px == "PX"
            self._set(raw(key), raw(value), int(ttl))
            return b"OK"
        assert name == "DEL", f"an unknown command: {name!r}"
        found = self._get(raw(args[0])) is not None
        self.drop(raw(args[0]))
        return int(found)

    # Sessions

    def _put_session(self, keys: list[bytes], args: list[bytes]) -> int:
        found = self._get(keys[0])
        if found is not None and found[:16] > args[1] and found[16:32] > args[0]:
            return 0
        self._set(keys[0], args[2], int(args[3]))
        return 1

    def _take_session(self, keys: list[bytes], args: list[bytes]) -> int:
        found = self._get(keys[0])
        if found is None or found[:16] <= args[1] or found[16:32] != args[0]:
            return 0
        self.values[keys[0]] = found[:16] + args[2] + found[32:]
        return 1

    def _drop_session(self, keys: list[bytes], args: list[bytes]) -> int:
        found = self._get(keys[0])
        if found is None or found[16:32] > args[0]:
            return 0
        self.drop(keys[0])
        return 1

    # What may befall it

    def keys(self) -> list[bytes]:
        return [*self.values, *self.sets]

    def drop(self, key: bytes) -> None:
        self.values.pop(key, None)
        self.sets.pop(key, None)
        self.until.pop(key, None)

    def flush(self) -> None:
        for key in self.keys():
            self.drop(key)

    def snapshot(self) -> tuple[dict[bytes, bytes], dict[bytes, list[bytes]], dict[bytes, int]]:
        return dict(self.values), {key: list(s) for key, s in self.sets.items()}, dict(self.until)

    def restore(
        self, saved: tuple[dict[bytes, bytes], dict[bytes, list[bytes]], dict[bytes, int]]
    ) -> None:
        """It comes back as it was then."""
        values, sets, until = saved
        self.values, self.until = dict(values), dict(until)
        self.sets = {key: list(members) for key, members in sets.items()}

    # Keys

    def _expire(self, key: bytes) -> None:
        if self.until.get(key, self._now() + 1) <= self._now():
            self.drop(key)

    def _get(self, key: bytes) -> bytes | None:
        self._expire(key)
        return self.values.get(key)

    def _set(self, key: bytes, value: bytes, ttl: int) -> None:
        self.values[key] = value
        self.until[key] = self._now() + ttl

    def _keep(self, key: bytes, ttl: int) -> None:
        if key not in self.values and key not in self.sets:
            return
        left = self.until[key] - self._now() if key in self.until else FOREVER
        if left < ttl:
            self.until[key] = self._now() + ttl

    def _members(self, key: bytes) -> list[bytes]:
        self._expire(key)
        return self.sets.get(key, [])

    def _add(self, key: bytes, member: bytes) -> None:
        members = self.sets.setdefault(key, [])
        at = bisect_left(members, member)
        if at == len(members) or members[at] != member:
            members.insert(at, member)

    def _remove(self, key: bytes, member: bytes) -> None:
        members = self.sets.get(key, [])
        if member in members:
            members.remove(member)
            if not members:
                self.drop(key)

    # The scripts

    def _newer_owner(self, key: bytes, mine: int, ttl: int) -> tuple[int | None, bool]:
        stored = self._get(key)
        owner = int(stored or 0)
        if mine < owner:
            return owner, False
        if mine > owner:
            self.values[key] = b"%d" % mine
        self._keep(key, ttl)
        return None, stored is None

    def _claim(self, keys: list[bytes], args: list[bytes]) -> Any:
        owner, _ = self._newer_owner(keys[0], int(args[0]), int(args[1]))
        if owner is not None:
            return owner
        now, start, limit = args[2], args[3], int(args[4])
        members = self._members(keys[1])
        begin = bisect_left(members, start[1:]) if start != b"-" else 0
        if start[:1] == b"(" and begin < len(members) and members[begin] == start[1:]:
            begin += 1
        page = members[begin : begin + limit]
        answer = [page[-1] if len(page) == limit else b""]
        for run in page:
            if run.split(b" ", 4)[3] > now:
                answer.append(run)
            else:
                self._remove(keys[1], run)
        return answer

    def _overwrite(self, keys: list[bytes], args: list[bytes]) -> Any:
        if self._get(keys[0]) == args[2]:
            self.drop(keys[0])
            self.drop(keys[1])
        return self._newer_owner(keys[0], int(args[0]), int(args[1]))[0]

    def _grant(self, keys: list[bytes], args: list[bytes]) -> Any:
        owner, fresh = self._newer_owner(keys[0], int(args[0]), int(args[1]))
        if owner is not None:
            return owner
        ttl, over, most = int(args[2]), args[3], int(args[4])
        for run in args[5:]:
            prefix, first, last, _ = run.split(b" ", 3)
            self._cut(keys[1], prefix, first, last)
            self._add(keys[1], run)
        if len(args) > 5:
            self._keep(keys[1], ttl)
        members = self._members(keys[1])
        for run in self._rng.sample(members, min(FEW, len(members))):
            if run.split(b" ", 4)[3] < over:
                self._remove(keys[1], run)
        excess = len(self._members(keys[1])) - most
        for run in self._rng.sample(self._members(keys[1]), max(excess, 0)):
            self._remove(keys[1], run)
        return b"fresh" if fresh else None

    def _release(self, keys: list[bytes], args: list[bytes]) -> Any:
        owner, fresh = self._newer_owner(keys[0], int(args[0]), int(args[1]))
        if owner is not None:
            return owner
        for at in range(2, len(args), 3):
            self._cut(keys[1], *args[at : at + 3])
        return b"fresh" if fresh else None

    def _remember(self, keys: list[bytes], args: list[bytes]) -> Any:
        owner, fresh = self._newer_owner(keys[0], int(args[0]), int(args[1]))
        if owner is not None:
            return owner
        for key, value in zip(keys[1:], args[3:], strict=True):
            self._set(key, value, int(args[2]))
        return b"fresh" if fresh else None

    def _cut(self, key: bytes, prefix: bytes, low: bytes, high: bytes) -> None:
        """Forget the numbers low to high of a prefix."""
        for run in list(self._members(key)):
            parts = run.split(b" ", 4)
            if parts[0] != prefix:
                continue
            _, first, last, deadline, rest = parts
            if last < low or first > high:
                continue
            members = self.sets[key]
            members.remove(run)
            if first < low:
                upto = b"%016d" % (int(low) - 1)
                insort(members, b" ".join((prefix, first, upto, deadline, rest)))
            if last > high:
                begin = b"%016d" % (int(high) + 1)
                insort(members, b" ".join((prefix, begin, last, deadline, rest)))
            if not members:
                self.drop(key)


def raw(value: Text) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
