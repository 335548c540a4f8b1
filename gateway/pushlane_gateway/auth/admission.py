"""Admission: the one door to everything that many callers share.

    with admission.admit(identity, "polls"):      # or Throttled
        ...
    permit = admission.admit(identity, "sessions")
    permit.release()

Each shared limit is declared once, by whoever has it (`limit`). Of each, an API key gets a share,
and a short-lived token a smaller one inside its key's: so nobody shuts others out, and a page that
somebody opened does not shut out the service that gave it its token. Without authentication all
callers are the same, and share with nobody.

What the dispatcher shares out it counts itself, by the same claims (`claims`).
"""

from __future__ import annotations

from types import TracebackType
from typing import Annotated

import msgspec
from msgspec import Meta

from pushlane_dispatcher.port import Claim, Claims, Places
from pushlane_gateway.auth.identity import Identity

__all__ = ["Admission", "Claims", "Permit", "ShareSettings"]


class ShareSettings(msgspec.Struct, frozen=True, kw_only=True):
    key_percent: Annotated[int, Meta(ge=1, le=100)] = 50
    """How much of each shared limit one API key may have, together with all tokens made from it:
    half, so that no key alone shuts the others out. Shared are `gateway.connections`,
    `gateway.waiting_bytes`, `session.sessions`, `session.detached`, `http.polls`, `http.pipes`,
    `http.peeks`, `http.answers_bytes`, `dispatcher.open_shards`, `dispatcher.waiting_publishers`,
    and a shard's `subscriptions`, `producers` and `producer_runs`."""
    token_percent: Annotated[int, Meta(ge=1, le=100)] = 2
    """How much of each one short-lived token may have, with the tokens made from it: it sits in a
    browser. For `http.polls` that is 20. Of a shard's `producers` and `producer_runs` it may have
    what its key may have: a producer goes by its key, as it goes on with a renewed token."""
    token_least: Annotated[int, Meta(ge=1, le=1_000_000)] = 4
    """What a token may have where that is less: a page does a few things at once."""


class Permit:
    """Places that somebody has, until they are released."""

    __slots__ = ("_claims", "_cost", "_places")

    def __init__(self, places: Places, claims: Claims, cost: int) -> None:
        self._places: Places | None = places
        self._claims = claims
        self._cost = cost
        places.take(claims, cost)

    def release(self) -> None:
        """Once is enough; more does nothing."""
        if self._places is not None:
            self._places.give_back(self._claims, self._cost)
            self._places = None

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Admission:
    def __init__(self, settings: ShareSettings | None = None) -> None:
        self._settings = settings or ShareSettings()
        self._places: dict[str, Places] = {}

    def limit(self, name: str, most: int, what: str) -> Places:
        """Declare a shared limit."""
        assert name not in self._places, name
        places = self._places[name] = Places(name, most, what)
        return places

    def admit(self, identity: Identity, name: str, cost: int = 1) -> Permit:
        """Some of a shared limit. `Throttled`: it is used up, or the caller's share of it is."""
        places, claims = self._places[name], self.claims(identity)
        refusal = places.refusal(claims, cost)
        if refusal is not None:
            raise refusal
        return Permit(places, claims, cost)

    def taken(self) -> dict[str, int]:
        """How much of each limit is in use, by its name."""
        return {name: places.taken for name, places in self._places.items()}

    def claims(self, identity: Identity) -> Claims:
        """What an identity may have of any limit; nothing said: everything."""
        settings = self._settings
        found: list[Claim] = []
        if identity.key is not None:
            found.append(Claim(f"key:{identity.key}", settings.key_percent))
        if identity.token is not None:
            who = f"token:{identity.token}"
            found.append(Claim(who, settings.token_percent, settings.token_least))
        return tuple(found)
