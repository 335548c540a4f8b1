"""Where a page's Cassandra and Redis really are: those of the test run, in an own keyspace."""

from __future__ import annotations

import os
from typing import NamedTuple

from tests.services import service

CASSANDRA = ":9042"
KEYSPACE = "pushlane"
REDIS = ":6379"


class Places(NamedTuple):
    there: tuple[tuple[str, str], ...] = ()
    """From what a page says to what is true here …"""
    back: tuple[tuple[str, str], ...] = ()
    """… and back."""

    def here(self, text: str) -> str:
        return _replace(text, self.there)

    def shown(self, text: str) -> str:
        return _replace(text, self.back)


def places_of(commands: str) -> Places:
    """Of the services that these commands name; they are started if need be."""
    there: list[tuple[str, str]] = []
    back: list[tuple[str, str]] = []
    if CASSANDRA in commands:
        port, keyspace = f":{service('cassandra').port}", f"docs_{os.getpid()}"
        there += [(f"{CASSANDRA}/{KEYSPACE}", f"{port}/{keyspace}"), (CASSANDRA, port)]
        back += [(keyspace, KEYSPACE), (port, CASSANDRA)]
    if REDIS in commands:
        port = f":{service('redis').port}"
        there += [(REDIS, port)]
        back += [(port, REDIS)]
    return Places(tuple(there), tuple(back))


def _replace(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text
