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
    from pushlane_spark.queue import read_queue
    from pushlane_spark.session import open_session

__all__ = ["audit", "open_session", "read_queue"]

_MODULES = {"audit": "auditing.report", "open_session": "session", "read_queue": "queue"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("pandas", "py4j", "pyarrow", "pyspark"):
            raise
        advice = "pip install 'pushlane-server[spark]'"
        raise SparkMissing(f"{error.name} is not installed: {advice}") from error
    return getattr(module, name)
