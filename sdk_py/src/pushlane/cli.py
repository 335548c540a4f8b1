"""The `pushlane` command.

There is one command for clients and operators alike. This module knows only how to start it; the
commands themselves come from the entry-point group `pushlane.commands`, so that installing the
server adds `serve` without this package knowing the server. An entry point names a function, or a
cyclopts App for a group of commands. All of them are loaded at every start, so a command's module
imports what is heavy inside its function.

The command-line library is in the extra `cli`; it is imported late so that its absence can be told
in a sentence.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

COMMANDS = "pushlane.commands"

HELP = """Pushlane, a WebSocket push-delivery queue.

Start a server with `pushlane serve`; then `pushlane publish orders hello` stores a message, and
`pushlane consume orders` takes it. `pushlane COMMAND --help` tells more."""


def build_app() -> App:
    from cyclopts import App

    app = App(
        name="pushlane",
        help=HELP,
        version=f"pushlane {metadata.version('pushlane')}",
    )
    for entry in metadata.entry_points(group=COMMANDS):
        app.command(entry.load(), name=entry.name)
    return app


def main() -> None:
    try:
        app = build_app()
    except ModuleNotFoundError as missing:
        if missing.name != "cyclopts":
            raise
        sys.exit("pushlane: the command line is not installed: pip install 'pushlane[cli]'")
    sys.exit(_run(app))


def _run(app: App) -> str | int | None:
    """What the command hands to sys.exit."""
    code: str | int | None = 0
    try:
        try:
            app(sys.argv[1:])
        except SystemExit as end:
            code = end.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        from pushlane.commands.output import forget_output, nobody_reads

        if not nobody_reads():
            raise
        forget_output()
    return code
