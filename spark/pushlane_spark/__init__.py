"""Spark jobs: what is worth knowing about messages after they have passed.

They read the store's tables beside the running server and never stand in a message's way. The jobs
may import storage (its schema and segment format) and `pushlane` (to replay); nothing imports them.

Names are loaded when they are first used: without the extra `spark` there is no PySpark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pushlane_spark.errors import SparkMissing

if TYPE_CHECKING:
    from pushlane_spark.auditing.report import audit
    from pushlane_spark.publishing import foreach_batch, publish
    from pushlane_spark.queue import read_queue
    from pushlane_spark.replaying.report import run as replay
    from pushlane_spark.session import open_session

__all__ = ["audit", "foreach_batch", "open_session", "publish", "read_queue", "replay"]

_PLACES = {
    "audit": "auditing.report:audit",
    "foreach_batch": "publishing:foreach_batch",
    "open_session": "session:open_session",
    "publish": "publishing:publish",
    "read_queue": "queue:read_queue",
    "replay": "replaying.report:run",
}
_EXTRA = ("matplotlib", "pandas", "py4j", "pyarrow", "pyspark")
"""What the extra `spark` brings."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_PLACES[name])


def load(place: str) -> Any:
    """A name of this package, as MODULE:NAME; `SparkMissing` without the extra."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        advice = "pip install 'pushlane-server[spark]' (in a checkout: make setup)"
        raise SparkMissing(f"{error.name} is not installed: {advice}") from error
