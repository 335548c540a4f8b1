"""The jars that Spark reads the stores with: fetched once through Maven, then kept.

They are in `PUSHLANE_JARS`, else in the user's cache. On a cluster nothing is fetched: there
`spark-submit --packages` names the same ones (`packages`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

from pushlane_spark.errors import JarsMissing

POM = Path(__file__).with_name("pom.xml")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS = 900


def packages() -> list[str]:
    """What the pom names, as `spark-submit --packages` takes it."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ElementTree.parse(POM).findall(".//m:dependency", space)
    return [":".join(str(part.text) for part in dependency) for dependency in found]


def spark_jars() -> list[Path]:
    """All jars. The first to ask fetches them, others wait; `JarsMissing`."""
    folder = _folder()
    # Another version of the pom has a folder of its own.
    jars = folder / f"spark-{sha256(POM.read_bytes()).hexdigest()[:12]}"
    if not jars.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / "spark.lock"):
                if not jars.is_dir():
                    _fetch(jars)
        except OSError as error:
            advice = "name a folder that can be written to in PUSHLANE_JARS"
            raise JarsMissing(f"{folder} can't be used: {error}: {advice}") from error
    return sorted(jars.glob("*.jar"))


def _folder() -> Path:
    named = os.environ.get("PUSHLANE_JARS")
    if named:
        return Path(named).absolute()  # Maven runs where the pom is
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pushlane")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(jars: Path) -> None:
    """Into a folder beside it first: what is there under its name is complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(
            f"Spark needs {' and '.join(packages())}, and there is no mvn to fetch them: install"
            " Maven (Debian: maven), or copy the folder from a machine that has it, and name it in"
            f" PUSHLANE_JARS ({jars} is missing)"
        )
    part = jars.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    command = [maven, "-B", "-q", "-f", str(POM), PLUGIN, *options]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise JarsMissing(f"Maven took more than {FETCH_SECONDS} s to fetch the jars") from None
    if done.returncode != 0:
        raise JarsMissing(f"Maven can't fetch the jars:\n{done.stdout}{done.stderr}")
    part.rename(jars)
