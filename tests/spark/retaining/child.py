"""The job in a process of its own, which tells of each step before it goes on.

python -m tests.spark.retaining.child STORE ARCHIVE URL
"""

from __future__ import annotations

import sys

from pushlane_spark.retaining.job import run
from pushlane_spark.session import open_session
from tests.spark.conftest import SETTINGS


def main(store: str, archive: str, url: str) -> None:
    spark = open_session("retention", master="local[1]", settings=SETTINGS)
    run(
        spark,
        store,
        archive=archive,
        url=url,
        group_messages=20,
        at=lambda step: print(step, flush=True),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
