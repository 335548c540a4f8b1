"""Every key of the configuration: what it takes, what it is by default, and why.

All of it is read off the Structs: annotations give types and ranges, defaults the defaults, and
the strings below the fields the reasons. Only where a Struct has no room for ranges or reasons of
its own (the wire's limits have a table, queues a function) they come from there.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from pushlane.wire.limits import LIMITS, MAX_INT, Limits
from pushlane_dispatcher.node import queue_ranges
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.configuration.configuration import DERIVED, SQLITE, Configuration

QUEUE_REASONS = {
    "lease_ms": "How long a consumer has a message, unless it extends; then another gets it.",
    "max_attempts": "Attempts after which a message goes to the dead letters.",
    "max_deliveries": "How often connections may break before its start: it may kill consumers.",
    "reserve_ms": "How long a message waits at a consumer that has not begun with it.",
    "backoff_base_ms": "The wait after the first failed attempt; it doubles with each …",
    "backoff_max_ms": "… up to this.",
    "consumer_backoff_base_ms": "How long a consumer that failed gets less; it doubles with each …",
    "consumer_backoff_max_ms": "… up to this.",
    "dedup_window_ms": "How long a dedup id is remembered.",
    "max_message_bytes": "Body or data of one message. Over it: `too_large`.",
    "max_messages": "Messages that the queue holds; then `overflow` decides.",
    "max_bytes": "The same in bytes; unset, there is no such limit.",
    "overflow": "What happens at the limit: refuse new ones, or make room by the oldest ready ones."
    " A lowered limit makes room at once.",
    "auto_expand": "Whether `max_messages` is doubled when the queue is nearly full.",
    "retention_ms": "How long a message stays when nobody takes it; no delay may be longer.",
    "retention_end": "What becomes of it then: it is dropped, or becomes a dead letter.",
    "archive": "With `parquet`, what has ended waits for the retention job to archive it.",
    "ordering": "The order across producers. Only `best_effort` in this version.",
    "reorder_window_ms": "For strict order. Not in this version.",
    "late_queue": "For strict order. Not in this version.",
    "late_to_head": "For strict order. Not in this version.",
    "dead_letter": "Where dead letters go; unset: `NAME.dead`, empty: nowhere.",
    "shards": "Parts of a queue with an order of their own: more take more load.",
    "encrypted": "Whether bodies are encrypted in the store. Not in this version.",
    "durability": "How many replicas have to confirm. Only `quorum` in this version.",
    "paused": "Whether the queue hands nothing out.",
}
"""Of `QueueConfig`, which the store knows and users read about elsewhere."""


def field_reasons(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What stands below each field, in one line; an AssertionError where there is nothing."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _string(below)
            assert text is not None, f"{struct.__name__}.{statement.target.id} has no reason"
            found[statement.target.id] = " ".join(text.split())
    return found


def _string(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else None
    return None


PREFIX = "PUSHLANE_"
DATA = "data"
"""Short for `store = "sqlite:DIR"`: a key of every source, but no field."""

# What a queue may say depends on the limits. Here it only has to be possible at all.
_WIDEST = Limits(
    frame_bytes=LIMITS["frame_bytes"].maximum,
    message_bytes=LIMITS["message_bytes"].maximum,
    lease_ms_min=LIMITS["lease_ms_min"].minimum,
    lease_ms_max=LIMITS["lease_ms_max"].maximum,
)
_MAY_BE_ZERO = ("sqlite.reserve_bytes", "sqlite.spare_bytes", "sqlite.quarantine_rows")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `describe` fills the reason in; checks don't need it."""

    name: str
    """Dotted: `limits.batch`."""
    type: Any
    """Without None and annotations: int, bool, str, tuple, Secret, or a Literal."""
    default: Any
    optional: bool = False
    least: int | None = None
    most: int | None = None
    reason: str = ""

    @property
    def section(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper().replace(".", "_")

    @property
    def is_list(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def is_secret(self) -> bool:
        return Secret in (self.type, *get_args(self.type))

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is typing.Literal else ()

    def holds(self, number: int) -> bool:
        """Whether an integer is in the key's range."""
        assert self.least is not None, self.name
        assert self.most is not None, self.name
        return self.least <= number <= self.most

    @property
    def expects(self) -> str:
        """What it takes, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.is_list:
            return "a list of strings"
        if self.type is int:
            return f"an integer from {self.least} to {self.most}"
        return "true or false" if self.type is bool else "a string"


def known_keys() -> dict[str, Key]:
    """Every key by its dotted name."""
    keys = {key.name: key for key in _walk(Configuration, "")}
    data = Key(name=DATA, type=str, default=Configuration().store.removeprefix(SQLITE))
    return {"listen": keys.pop("listen"), DATA: data, **keys}


def describe() -> Iterator[Key]:
    """Every key with its reason."""
    reasons: dict[str, dict[str, str]] = {}
    for key in known_keys().values():
        section, _, field = key.name.rpartition(".")
        if section not in reasons:
            reasons[section] = _reasons(section)
        yield msgspec.structs.replace(key, reason=reasons[section][field])


def section_type(name: str) -> type[msgspec.Struct]:
    """The Struct of a section; of `Configuration` itself for the empty name."""
    found: type[msgspec.Struct] = Configuration
    for step in filter(None, name.split(".")):
        found = get_type_hints(found)[step]
    return found


def _walk(struct: type[msgspec.Struct], section: str) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        name = f"{section}.{field.name}" if section else field.name
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _walk(hint, name)
        elif name not in DERIVED:
            yield _key(name, hint, field.default)


def _key(name: str, hint: Any, default: Any) -> Key:
    kind, optional, meta = _unwrap(hint)
    least, most = _range(name, meta) if kind is int else (None, None)
    return Key(name=name, type=kind, default=default, optional=optional, least=least, most=most)


def _unwrap(hint: Any) -> tuple[Any, bool, msgspec.Meta | None]:
    """A hint without `| None` and without `Annotated`."""
    optional = False
    if get_origin(hint) in (UnionType, typing.Union):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
        optional = True
    if get_origin(hint) is typing.Annotated:
        kind, meta = get_args(hint)
        return kind, optional, meta
    return hint, optional, None


def _range(name: str, meta: msgspec.Meta | None) -> tuple[int, int]:
    section, _, field = name.rpartition(".")
    if section == "limits":
        return LIMITS[field].minimum, LIMITS[field].maximum
    if section == "queues.template":
        return queue_ranges(_WIDEST).get(field, (0, MAX_INT))
    if meta is not None:
        assert isinstance(meta.ge, int), name
        assert isinstance(meta.le, int), name
        return meta.ge, meta.le
    return (0 if name in _MAY_BE_ZERO else 1), MAX_INT


def _reasons(section: str) -> dict[str, str]:
    if section == "limits":
        return {name: info.reason for name, info in LIMITS.items()}
    if section == "queues.template":
        return QUEUE_REASONS
    found = field_reasons(section_type(section))
    if not section:
        found[DATA] = 'Short for `store = "sqlite:DIR"`: the folder of the embedded store.'
    return found
