"""Retention: what has ended is archived, and dropped when nobody needs it any more.

plan        which buckets: to archive, to drop, to wait for
archiving   staged, verified, committed, published: so often as need be, and each message once
dropping    through the store, or the server that has it
job         all of it, one after the other
"""

from pushlane_spark.retaining.job import run
from pushlane_spark.retaining.report import RetentionReport

__all__ = ["RetentionReport", "run"]
