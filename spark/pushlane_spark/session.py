"""The Spark session that all jobs run in.

On one machine (`open_session()`) it brings its own Spark: Java is looked for before Spark does
(whose own message is a stack trace), jars are fetched, and the driver listens on the loopback
address only. Under `spark-submit` the cluster has decided all that, and the session is taken as it
is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pushlane_spark.errors import JavaUnfit
from pushlane_spark.jars import spark_jars

VERSION = 17
"""What Spark 3.5 and the connector to Cassandra are tested with together."""
ANSWER_SECONDS = 60
_ADVICE = f"install Java {VERSION} (Debian: openjdk-{VERSION}-jre-headless), or set JAVA_HOME to it"


def check_java() -> None:
    """`JavaUnfit` unless Spark would find the right one."""
    program = _find()
    found = _version(program)
    if found != VERSION:
        raise JavaUnfit(f"{program} is Java {found}, Spark needs {VERSION}: {_ADVICE}")


def _find() -> str:
    """As Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        if not program.is_file():
            raise JavaUnfit(f"JAVA_HOME is {home}, where there is no Java: {_ADVICE}")
        return str(program)
    found = shutil.which("java")
    if found is None:
        raise JavaUnfit(f"Spark needs Java, and there is none: {_ADVICE}")
    return found


def _version(program: str) -> int:
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnfit(f"{program} can't be run: {error}: {_ADVICE}") from error
    # Java 8 calls itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None:
        raise JavaUnfit(f"{program} does not say which Java it is: {_ADVICE}")
    return int(found[1])


LOOPBACK = "127.0.0.1"
SEGMENTS_AT_ONCE = 64
"""Rows that go to Python together. Ours are segments, of a few megabytes at most."""

DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "pushlane_spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(SEGMENTS_AT_ONCE),
    "spark.sql.extensions": "com.datastax.spark.connector.CassandraSparkExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What a session of our own is made with."""


def open_session(
    name: str = "pushlane",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process: the one that is there, or a new one; `JavaUnfit`, `JarsMissing`.

    `settings` are Spark's own, and win over ours.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started Java, with all that it needs
        return SparkSession.builder.appName(name).getOrCreate()
    check_java()
    jars = ",".join(map(str, spark_jars()))
    # Only the environment says this: workers must be the Python that has this package, and Java
    # looks for an address of its own before it reads any setting.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    own = {"spark.master": master, "spark.jars": jars}
    builder = SparkSession.builder.appName(name)
    for key, value in {**DEFAULTS, **own, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
