"""Blocks of `console`: commands behind a `$`, and what they print.

A line that ends with a backslash goes on in the next one. `…` stands for something in a line that
can't be told before: an id, a time. `⋮` alone in a line stands for any lines. Neither stands for an
error message: those begin with the command's name, and are shown as such. `^C` as the last line
interrupts a command that would go on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PROMPT = "$ "
INTERRUPT = "^C\n"
SOMETHING = "…"
ANY_LINES = "⋮\n"
NO_ERROR = "(?!pushlane(?: [a-z]+)?: |Traceback)"


class Example(NamedTuple):
    command: str
    shown: str
    line: int
    is_interrupted: bool = False


def read_examples(text: str, line: int) -> list[Example]:
    """The examples of a block that begins in this line of its page."""
    examples: list[Example] = []
    command: list[str] = []
    shown: list[str] = []
    started = line
    continues = False
    for number, row in enumerate(text.splitlines(keepends=True), line):
        is_command = continues or row.startswith(PROMPT)
        if is_command and not continues:
            if command:
                examples.append(_example(command, shown, started))
            command, shown, started = [row.removeprefix(PROMPT)], [], number
        elif is_command:
            command.append(row)
        else:
            assert command, f"line {number}: output of no command"
            shown.append(row)
        continues = is_command and row.endswith("\\\n")
    if command:
        examples.append(_example(command, shown, started))
    return examples


def _example(command: list[str], shown: list[str], line: int) -> Example:
    is_interrupted = shown[-1:] == [INTERRUPT]
    text = "".join(shown[:-1] if is_interrupted else shown)
    return Example("".join(command).rstrip("\n"), text, line, is_interrupted)


def is_shown(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed."""
    rows = shown.splitlines(keepends=True)
    pattern = "".join(
        rf"(?:{NO_ERROR}.*\n)*" if row == ANY_LINES else _pattern(row) for row in rows
    )
    return re.fullmatch(pattern, printed) is not None


def _pattern(row: str) -> str:
    start = NO_ERROR if row.startswith(SOMETHING) else ""
    return start + ".+".join(map(re.escape, row.split(SOMETHING)))
