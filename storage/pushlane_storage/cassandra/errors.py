"""What can go wrong when a Cassandra store is opened.

OpenError                   it can't be served, and nothing of what it holds was changed
├── DriverMissing           the extra `cluster` is not installed
├── Unreachable             no node answers, or none lets us in
├── KeyspaceMissing         there is none, or an older one, and migrating is switched off
├── KeyspaceNewer           a newer version of Pushlane made it
└── KeyspaceUnusable        it can't be made, or doesn't do what it is told
"""


class OpenError(Exception):
    """The keyspace can't be served."""


class DriverMissing(OpenError):
    def __init__(self) -> None:
        super().__init__(
            "a store on Cassandra needs the Cassandra driver:"
            " pip install 'pushlane-server[cluster]' (in a checkout: make setup)"
        )


class Unreachable(OpenError):
    """No node answers, or none lets us in."""


class KeyspaceMissing(OpenError):
    """The tables are not there, or are of an older version, and we may not make them."""


class KeyspaceNewer(OpenError):
    def __init__(self, keyspace: str, found: int, known: int) -> None:
        super().__init__(
            f"keyspace {keyspace} was made by a newer version of Pushlane (schema {found}, this"
            f" version knows up to {known}): run that version"
        )
        self.found = found
        self.known = known


class KeyspaceUnusable(OpenError):
    """The keyspace or its tables can't be made."""
