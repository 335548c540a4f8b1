"""Names of queues, topics and tenants, and the targets that `to` and `from` give.

One rule for all three: 1 to 120 of `A-Z a-z 0-9 . _ -`, not starting with a dot, capitals count.
Names are parts of URLs, file names and metrics, hence the small alphabet; a leading dot would make
hidden files and `..`. The colon is no part of it, so `topic:NAME` can't be a queue.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import BadRequest
from .limits import DEFAULTS

_MAX = DEFAULTS.name
_NAME = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9._-]{{0,{_MAX - 1}}}")
_STRANGE = re.compile(r"[^A-Za-z0-9._-]")
_TOPIC = "topic:"


class Target(NamedTuple):
    """Where a publish goes or a subscription comes from."""

    name: str
    is_topic: bool = False

    def __str__(self) -> str:
        return _TOPIC + self.name if self.is_topic else self.name


def check_queue_name(name: str) -> str:
    """The name itself, or BadRequest saying what is wrong with it."""
    if name.startswith(_TOPIC):
        raise BadRequest(f"queue name {name[:_MAX]!a}: topics are not supported yet, use a queue")
    return _check("queue", name)


def check_topic_name(name: str) -> str:
    """The name itself (without `topic:`), or BadRequest saying what is wrong with it."""
    return _check("topic", name)


def check_tenant_name(name: str) -> str:
    """The name itself, or BadRequest saying what is wrong with it."""
    return _check("tenant", name)


def parse_target(text: str) -> Target:
    """Read a `to` or `from`: `topic:NAME`, or the name of a queue."""
    if text.startswith(_TOPIC):
        return Target(check_topic_name(text[len(_TOPIC) :]), True)
    return Target(check_queue_name(text))


def _check(what: str, name: str) -> str:
    if _NAME.fullmatch(name) is None:
        limit = "name" if len(name) > _MAX else None
        raise BadRequest(f"{what} name {_fault(name)}", limit=limit)
    return name


def _fault(name: str) -> str:
    if not name:
        return "is empty"
    if len(name) > _MAX:
        return f"has {len(name)} characters: at most {_MAX}"
    if name[0] == ".":
        return f"{name!r} starts with a dot"
    strange = _STRANGE.search(name)
    assert strange is not None, name
    return (
        f"{name!a} has {strange[0]!a} at {strange.start()}: only A-Z a-z 0-9 . _ - may stand there"
    )
