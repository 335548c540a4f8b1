"""What commands print: JSON for programs, lines and tables for people, progress on stderr.

Where nobody reads any more, as with `pushlane consume orders | head -1`, that is no fault of ours:
the command ends without a word. What it could not print it did not take: a message is acked after
it was printed.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

FLAG = Parameter(negative="", show_default=False)
"""What is off unless it is given."""
Json = Annotated[bool, Parameter(name="--json", help="Print JSON."), FLAG]

MANY = 100
"""With at least this many things there is a progress bar."""

Advance = Callable[[int], None]
"""Tells the progress bar how many more are done."""


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(msgspec.json.encode(value).decode(), flush=True)


def note(text: str) -> None:
    """Something for people only."""
    print(f"pushlane: {text}", file=sys.stderr, flush=True)


def print_object(value: Mapping[str, Any]) -> None:
    """A line for each field, names in a column; what is not set is left out."""
    shown = [(name, _cell(name, item)) for name, item in _flat(value) if item is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        print(f"{name:<{width}}  {text}")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each row, these columns only."""
    table = [[column.upper() for column in columns]]
    table += [[_cell(column, row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """A bar on stderr for many things, where a person sees it. `total` None: nobody knows.

    Not where stdout is a terminal as well: there the results themselves show how it goes on.
    """
    few = total is not None and total < MANY
    if few or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def age(ms: float) -> str:
    """A duration in its two largest units: 3d 4h, 12m 5s, 7s."""
    left = max(0, int(ms / 1000))
    parts = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        parts.append((count, unit))
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{count}{unit}" for count, unit in parts[:2])


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{above}{name}.")
        else:
            yield above + name, item


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value if value.isprintable() and value else msgspec.json.encode(value).decode()
    if _is_time(name) and isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds")[:-6] + "Z"
    return msgspec.json.encode(value).decode()


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in ("since", "until")


def nobody_reads() -> bool:
    """Whether stdout is a pipe or socket whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # asks for errors only
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no stdout, no descriptor, no poll
        return False


def forget_output() -> None:
    """Send what is still in the buffer nowhere, so that the interpreter can end in peace."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
