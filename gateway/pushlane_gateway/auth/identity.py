"""Who is at the other end, and what they may do."""

from __future__ import annotations

import msgspec

from pushlane_gateway.auth.rule import OPERATE, Action, Rule, allow, patterns

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
    subject: str | None = None
    """For whom a signed token was made, such as a user of the application."""
    token: str | None = None
    """Names a signed token, and all that are made from it; None: it is none."""

    def is_same(self, other: Identity) -> bool:
        """Whether it is the same party, be its token a renewed one or its rights others.

        Names don't count: two keys may have the same one, and all tokens of a key share it.
        """
        mine, theirs = (
            (self.tenant, self.key, self.subject),
            (other.tenant, other.key, other.subject),
        )
        return mine == theirs

    def allows(self, action: Action, queue: str) -> bool:
        """`queue` is a queue's name, or `topic:` and a topic's."""
        return allow(self.rules, action, queue)

    @property
    def operates(self) -> bool:
        """Whether it may see and do what concerns the whole server."""
        return self.allows(OPERATE, "*")

    def queues(self, *actions: Action) -> tuple[str, ...]:
        """Patterns of the queues on which it may do any of this."""
        return patterns(self.rules, actions)


ANONYMOUS = Identity("anonymous", DEFAULT_TENANT, (Rule("admin", "*"), Rule(OPERATE, "*")))
"""Anybody, while nobody is asked for a key: all rights in the default tenant, and to operate."""
