"""The steps of a run, for people to watch: on stderr, so that the report can go elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def showing(console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Something to tell of each step, which shows the last one and how many groups are done."""
    counts: Counter[str] = Counter()
    with (console or Console(stderr=True)).status("looking") as status:

        def at(step: str) -> None:
            counts[step] += 1
            status.update(f"{step}, {counts['cleaned up']} groups archived")

        yield at
