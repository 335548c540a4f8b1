"""Which server, and as whom: two flags that every client command has.

There is no flag for the token itself: what stands on a command line stands in the list of
processes and in the shell's history.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from pushlane.wire.errors import BadRequest

if TYPE_CHECKING:
    from pushlane.asyncio.client import connect

TOKEN_VARIABLE = "PUSHLANE_TOKEN"
CONNECT_MS = 5_000
"""How long a command tries to connect: a person waits for it."""

_GROUP = Group("Server", sort_key=100)


@Parameter(name="*")
@dataclass(frozen=True)
class Server:
    """The server to talk to."""

    url: Annotated[
        str | None,
        Parameter(
            group=_GROUP, help="The server's URL. Default: PUSHLANE_URL, then ws://127.0.0.1:8420."
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        Parameter(group=_GROUP, help="A file with the token. Default: PUSHLANE_TOKEN."),
    ] = None

    def token(self) -> str | None:
        """The token, if there is one."""
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE) or None
        try:
            return self.token_file.read_text().strip() or None
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise BadRequest(f"{self.token_file} can't be read: {reason}") from None

    def connect(self) -> connect:
        """A connection to be opened."""
        from pushlane.asyncio.client import connect
        from pushlane.core.settings import Settings

        settings = Settings(connect_ms=CONNECT_MS)
        return connect(self.url, token=self.token(), name="pushlane command", settings=settings)


HERE = Server()
"""The server that the environment names."""
