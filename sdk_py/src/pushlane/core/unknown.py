"""A name that nobody knows is most likely a mistake: it is refused, with the nearest one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pushlane.wire.errors import BadRequest


def no_option(name: str, known: Iterable[str]) -> BadRequest:
    """The error for an option that there isn't."""
    return BadRequest(f"no option {name!r}{hint(name, known)}")


def hint(name: str, known: Iterable[str]) -> str:
    """What was meant, or else what there is."""
    names = list(known)
    near = [one for one in names if one.startswith(name)] or get_close_matches(name, names, 1, 0.5)
    return f": did you mean {near[0]!r}?" if near else f": there are {', '.join(names)}"
