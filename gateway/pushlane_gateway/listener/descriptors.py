"""File descriptors: as many as the configured connections need, or a warning."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

OTHERS = 256
"""Descriptors for all that is no connection: the store, the listening sockets, logs, threads."""


def ensure_descriptors(connections: int) -> None:
    """Raise the soft limit as far as it takes and the hard one allows; warn when that is too low.

    A shell's default soft limit is 1,024, for the sake of programs that use `select`; this is none.
    """
    needed = connections + OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < connections:
        log.warning(
            "only %d file descriptors are allowed (ulimit -n), too few for gateway.connections = %d"
            " and %d for other files: raise the limit to %d, or lower gateway.connections to %d",
            allowed, connections, OTHERS, needed, max(1, allowed - OTHERS),
        )  # fmt: skip
