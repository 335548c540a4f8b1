"""Who is at the other end, and what they may do."""

from __future__ import annotations

import msgspec

from pushlane_gateway.auth.rule import Action, Rule, allow

DEFAULT_TENANT = "default"


class Identity(msgspec.Struct, frozen=True):
    """What a valid token stands for. It holds no secret, so it may be logged."""

    name: str
    tenant: str
    rules: tuple[Rule, ...]
    expires_at: int | None = None
    """Unix milliseconds; None: until the key is revoked."""
    key: str | None = None
    """The public id of the API key that it came from, directly or by a signed token."""

    def allows(self, action: Action, queue: str) -> bool:
        """`queue` is a queue's name, or `topic:` and a topic's."""
        return allow(self.rules, action, queue)


ANONYMOUS = Identity("anonymous", DEFAULT_TENANT, (Rule("admin", "*"),))
"""Anybody, while no authentication is asked for: all rights in the default tenant."""
