"""`pushlane jobs` for `spark-submit`, which wants a file: `pushlane jobs path` prints where it is.

spark-submit … $(pushlane jobs path) retention --store cassandra://db/pushlane
"""

from pushlane_spark.jobs_command import jobs

if __name__ == "__main__":
    jobs()
