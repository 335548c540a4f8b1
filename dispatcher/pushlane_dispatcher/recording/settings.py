"""What is recorded, where, and how much of it is kept."""

from typing import Annotated

import msgspec


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    queues: tuple[str, ...] = ()
    """Queues whose history is recorded for the audit, with their `NAME.dead`: patterns of `NAME` or
    `TENANT/NAME`, such as `orders*`. None: nothing is recorded."""
    folder: str = "./pushlane-history"
    """Where the files are."""
    file_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=1 << 40)] = 64 << 20
    """When a file is this long, the next one begins."""
    files: Annotated[int, msgspec.Meta(ge=2, le=1_000_000)] = 16
    """Files that are kept; with one more the oldest goes, and the history begins later."""
    events: Annotated[int, msgspec.Meta(ge=10, le=10_000_000)] = 100_000
    """Events that wait to be written. What comes when there are more is not recorded: a gap says
    so, and no message ever waits."""
