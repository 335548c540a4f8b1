"""What is wrong with a configuration, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


class ConfigurationError(Exception):
    """The server can't start like this. One line for each fault; none of them shows a secret."""

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.faults: Sequence[str] = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)
