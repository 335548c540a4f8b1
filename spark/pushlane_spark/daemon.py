"""The process that Spark forks its Python workers from, in the place of pyspark's own.

Our tasks are many and short, and what a worker of Spark 3.5 does between two of them took longer
than most: it reads the directories of all archives on its path anew (Spark's own jar is one), and
looks for garbage in everything that was ever imported. Archives don't change while a session lasts,
so they are read once. And what tasks need is imported here, once for all workers, and kept out of
the collector's sight.

Spark runs it as `python -m pushlane_spark.daemon`, by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import importlib
import zipimport

NEEDED = (
    "pandas",
    "pyarrow",
    "pyspark.sql.pandas.serializers",
    "pushlane_spark.auditing.judging",
    "pushlane_spark.decoding",
    "pushlane_spark.states",
)


def prepare() -> None:
    for name in NEEDED:
        importlib.import_module(name)
    setattr(zipimport.zipimporter, "invalidate_caches", _keep)  # noqa: B010
    gc.collect()
    gc.freeze()


def _keep(archive: zipimport.zipimporter) -> None:
    """Its directory is what it was."""


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()  # type: ignore[no-untyped-call]
