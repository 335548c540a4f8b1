"""Asking before something is gone for good."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from pushlane.commands.exits import fail
from pushlane.commands.output import FLAG

Yes = Annotated[bool, Parameter(name="--yes", help="Don't ask."), FLAG]
Confirm = Annotated[
    str | None, Parameter(name="--confirm", help="The name once more, instead of being asked.")
]


def confirm(name: str, what: str, yes: bool, confirmed: str | None) -> None:
    """Return when the user means it; end the command otherwise. `what` is what will be gone."""
    if confirmed is not None and confirmed != name:
        fail(f"--confirm {confirmed!a} is not the name {name!a}: nothing was done")
    if yes or confirmed == name:
        return
    if not sys.stdin.isatty():
        fail(f"{what} will be gone: repeat with --confirm {name}, or with --yes")
    print(f"{what} will be gone. Type the name to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        fail("that is not its name: nothing was done")
