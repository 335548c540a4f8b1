"""The Java that Spark runs on, looked for before Spark does: its own message is a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pushlane_spark.errors import JavaUnfit

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
