"""The keeper of a shared service: runs it until nobody uses it.

python -m tools.services.keeper KIND FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec

from tools.services.cassandra import RING_OF_THREE, running_cassandra
from tools.services.folder import is_held, locked
from tools.services.process import CannotStart
from tools.services.redis import running_redis, running_redis_cluster
from tools.services.shared import Place, Service


@contextmanager
def _redis() -> Iterator[Service]:
    with running_redis() as server:
        yield Service([server.host], server.port, server.process.pid)


@contextmanager
def _cassandra(size: int = 1) -> Iterator[Service]:
    with running_cassandra(size) as ring:
        yield Service(ring.hosts, ring.port, ring.nodes[0].process.pid)


@contextmanager
def _redis_cluster() -> Iterator[Service]:
    with running_redis_cluster(3) as [first, *_]:
        yield Service([first.host], first.port, first.process.pid)


KINDS: dict[str, Callable[[], AbstractContextManager[Service]]] = {
    "redis": _redis,
    "redis-cluster": _redis_cluster,
    "cassandra": _cassandra,
    "cassandra-ring": lambda: _cassandra(RING_OF_THREE),
}


def keep(place: Place) -> None:
    with locked(place.keeper), KINDS[place.kind]() as service:
        part = place.address.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(service))
        part.rename(place.address)
        with locked(place.users):
            place.address.unlink(missing_ok=True)
    _clean(place)


def _clean(place: Place) -> None:
    """Unless somebody came just now: then there is another keeper."""
    with locked(place.start):
        if not is_held(place.users):
            for file in place.folder.glob(f"{place.kind}.*"):
                file.unlink()
    with suppress(OSError):  # another service is in use
        place.folder.rmdir()


if __name__ == "__main__":
    try:
        keep(Place(sys.argv[1], Path(sys.argv[2])))
    except CannotStart as fault:
        sys.exit(str(fault))
