"""Places: a limit that many share, of which each of them gets a part only.

A claim says who asks, and how much of any limit they may have. Somebody may have several (a token's
own, and that of the key it was made from): then all of them have to have room. Nobody's first place
is refused for its share, so a share is never too small to be of use; only the whole limit is hard.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pushlane.wire.errors import Throttled

RETRY_MS = 1_000


class Claim(NamedTuple):
    who: str
    percent: int
    """Of whatever limit it is."""
    least: int = 1
    """Places that are theirs where that is less."""

    def share_of(self, most: int) -> int:
        return min(most, max(self.least, most * self.percent // 100))


Claims = tuple[Claim, ...]
"""Of one caller. None at all: it may have everything."""


class Places:
    __slots__ = ("_by", "most", "name", "taken", "what")

    def __init__(self, name: str, most: int, what: str) -> None:
        """`name` is the limit's, `what` is what it limits, for people."""
        self.name = name
        self.most = most
        self.what = what
        self.taken = 0
        self._by: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        """There are none left for anybody."""
        return self.taken >= self.most

    def over(self, claims: Claims, cost: int = 1) -> Claim | None:
        """The claim that is used up; None: each has room."""
        for claim in claims:
            taken = self._by[claim.who]
            if taken and taken + cost > claim.share_of(self.most):
                return claim
        return None

    def refusal(self, claims: Claims, cost: int = 1) -> Throttled | None:
        """Why these places can't be had; None: they can."""
        claim = self.over(claims, cost)
        if claim is not None:
            share = claim.share_of(self.most)
            return Throttled(
                f"your share of {self.what} is used up ({share} of {self.most}): try again later",
                retry_ms=RETRY_MS,
                limit=f"{self.name}_share",
            )
        if self.taken and self.taken + cost > self.most:
            return Throttled(
                f"too many {self.what} ({self.most}): try again later",
                retry_ms=RETRY_MS,
                limit=self.name,
            )
        return None

    def take(self, claims: Claims, cost: int = 1) -> None:
        """Take places, whether or not there is room."""
        self.taken += cost
        for claim in claims:
            self._by[claim.who] += cost

    def give_back(self, claims: Claims, cost: int = 1) -> None:
        self.taken -= cost
        assert self.taken >= 0, self.name
        for claim in claims:
            self._by[claim.who] -= cost
            if not self._by[claim.who]:
                del self._by[claim.who]
