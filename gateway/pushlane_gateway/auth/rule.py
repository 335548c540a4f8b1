"""Rules: who may do what on which names, written `publish:orders*`.

`admin` implies publish, consume and manage. A pattern is a queue's name, the beginning of one with
a star (`orders*`), a topic likewise (`topic:orders*`), or `*` for everything. A pattern for queues
never reaches topics: `to*` has nothing to do with `topic:news`.

`operate:*` is about the server, not about a tenant's names: bills, metrics of all tenants. Nothing
else implies it, admin neither: who owns a tenant doesn't own the server.

Sets of rules can only be narrowed: `covers` is true when whatever the second set allows is allowed
by a single rule of the first. Rules that allow something only together (there are none in this
grammar, but for odd cases such as all 64 first letters) don't count; that errs on the safe side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import DEFAULTS

Action = Literal["publish", "consume", "manage", "admin", "operate"]
ACTIONS: tuple[Action, ...] = get_args(Action)
MAX_RULES = 64
"""Rules of one key or token: each is looked at for every request, and tokens travel in headers."""

OPERATE: Action = "operate"

_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PATTERN = re.compile(rf"(?:topic:)?(?:{_NAME}\*?|\*)")
_TOPIC = "topic:"
_EVERYTHING = "*"
_HINT = "a rule is ACTION:PATTERN, such as publish:orders, consume:orders* or admin:*"


class Rule(msgspec.Struct, frozen=True):
    """One action on the names of one pattern."""

    action: Action
    pattern: str

    def __str__(self) -> str:
        return f"{self.action}:{self.pattern}"

    def allows(self, action: Action, name: str) -> bool:
        """`name` is a queue's, or `topic:` and a topic's."""
        return self._is(action) and _matches(self.pattern, name)

    def covers(self, other: Rule) -> bool:
        """Whether this rule allows all that the other one does."""
        return self._is(other.action) and _contains(self.pattern, other.pattern)

    def _is(self, action: Action) -> bool:
        return self.action == action or (self.action == "admin" and action != OPERATE)


def parse_rule(text: str) -> Rule:
    """Read `ACTION:PATTERN`; `BadRequest` says what is wrong with it."""
    action, colon, pattern = text.partition(":")
    known = next((name for name in ACTIONS if name == action), None)
    if not colon or known is None:
        raise BadRequest(
            f"rule {text[:150]!a}: the action must be one of {', '.join(ACTIONS)}; {_HINT}"
        )
    if _PATTERN.fullmatch(pattern) is None:
        raise BadRequest(f"rule {text[:150]!a}: the pattern is not NAME, NAME* or *; {_HINT}")
    if known == OPERATE and pattern != _EVERYTHING:
        raise BadRequest(f"rule {text[:150]!a}: to operate a server is all or nothing: operate:*")
    if len(pattern.removeprefix(_TOPIC).removesuffix("*")) > DEFAULTS.name:
        raise BadRequest(f"rule {text[:150]!a}: a name has at most {DEFAULTS.name} characters")
    return Rule(known, pattern)


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """Read several: at least one, at most `MAX_RULES`; repeated ones count once."""
    rules = tuple(dict.fromkeys(parse_rule(text) for text in texts))
    check_count(rules)
    return rules


def check_count(rules: Sequence[Rule]) -> None:
    if not 1 <= len(rules) <= MAX_RULES:
        raise BadRequest(f"there are {len(rules)} rules: 1 to {MAX_RULES}; {_HINT}", limit="rules")


def allow(rules: Iterable[Rule], action: Action, name: str) -> bool:
    return any(rule.allows(action, name) for rule in rules)


def patterns(rules: Iterable[Rule], actions: Iterable[Action]) -> tuple[str, ...]:
    """Those of the queues on which any of these actions is allowed, each once."""
    wanted = {*actions, "admin"}
    found = (rule.pattern for rule in rules if rule.action in wanted)
    return tuple(dict.fromkeys(name for name in found if not name.startswith(_TOPIC)))


def first_uncovered(wide: Sequence[Rule], narrow: Iterable[Rule]) -> Rule | None:
    """A rule of the narrow set that no rule of the wide one covers; None when all are."""
    for rule in narrow:
        if not any(mine.covers(rule) for mine in wide):
            return rule
    return None


def covers(wide: Sequence[Rule], narrow: Iterable[Rule]) -> bool:
    return first_uncovered(wide, narrow) is None


def _matches(pattern: str, name: str) -> bool:
    if pattern in (_EVERYTHING, name):
        return True
    return pattern[-1] == "*" and _same_kind(pattern, name) and name.startswith(pattern[:-1])


def _contains(pattern: str, other: str) -> bool:
    if pattern in (_EVERYTHING, other):
        return True
    within = other.removesuffix("*").startswith(pattern[:-1])
    return pattern[-1] == "*" and _same_kind(pattern, other) and within


def _same_kind(pattern: str, name: str) -> bool:
    return pattern.startswith(_TOPIC) == name.startswith(_TOPIC)
