"""Why a key is there: the strings that stand below the fields of a Struct, read from its source."""

from __future__ import annotations

import ast
import inspect
import textwrap

import msgspec

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
