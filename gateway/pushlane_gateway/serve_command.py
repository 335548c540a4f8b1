"""`pushlane serve`: runs the server, once there is a listener to run."""

import sys
from importlib import metadata

NOT_YET = """\
pushlane serve: version {version} has no listener yet, so there is nothing to serve.
What is there so far are libraries: the wire schema (pushlane.wire), the stores
(pushlane_storage), the lease caches (pushlane_leases) and the dispatcher (pushlane_dispatcher)."""


def serve() -> None:
    """Run the server (not in this version yet)."""
    print(NOT_YET.format(version=metadata.version("pushlane-server")), file=sys.stderr)
    sys.exit(2)
