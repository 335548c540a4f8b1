"""The driver's errors as the seam's outcomes.

`StoreRefused` must be certain: a caller that is refused uses the same keys again for something
else. So only what a coordinator turns down before it sends anything, and what never left this
process, is refused. Everything else is unknown.
"""

from __future__ import annotations

import struct

from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown

_BUGS = (AssertionError, TypeError, ValueError, struct.error)


def before_sending(error: Exception) -> Exception:
    """What to answer when a request could not even be made. A bug of ours stays what it is."""
    return error if isinstance(error, _BUGS) else outcome_of(error, 0)


def outcome_of(error: Exception, nodes: int) -> StoreError:
    """What to answer. `nodes` is how many of them have been sent the request."""
    from cassandra import InvalidRequest, Unauthorized, Unavailable
    from cassandra.cluster import NoHostAvailable
    from cassandra.protocol import IsBootstrappingErrorMessage, SyntaxException

    turned_down = (InvalidRequest, Unauthorized, IsBootstrappingErrorMessage, SyntaxException)
    # When two were asked, the other one may do what this one turned down.
    if isinstance(error, (Unavailable, *turned_down)) and nodes <= 1:
        return StoreRefused(_text(error))
    if isinstance(error, NoHostAvailable) and not nodes:
        return StoreRefused(_text(error))
    return StoreUnknown(_text(error))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
