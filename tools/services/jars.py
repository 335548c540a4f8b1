"""Cassandra's jars: fetched once through Maven, kept in `.venv/services` or in `PUSHLANE_JARS`."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.services.fault import CannotStart
from tools.services.locks import locked
from tools.services.process import need

ROOT = Path(__file__).parents[2]
POM = Path(__file__).with_name("pom.xml")
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS = 900


def cassandra_jars() -> Path:
    """The folder with all jars. The first to ask fetches them, the others wait."""
    version = _version()
    folder = Path(os.environ.get("PUSHLANE_JARS") or ROOT / ".venv" / "services")
    jars = folder / f"cassandra-{version}"
    if not jars.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock"):
            if not jars.is_dir():
                _fetch(jars)
    return jars


def _version() -> str:
    [version] = re.findall(r"cassandra-all</artifactId>\s*<version>(.+)</version>", POM.read_text())
    return str(version)


def _fetch(jars: Path) -> None:
    """Into a folder beside it first: what is there under its name is complete."""
    part = jars.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    command = [need("mvn", "maven"), "-B", "-q", "-f", str(POM), PLUGIN, *options]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        raise CannotStart(f"Maven took more than {FETCH_SECONDS} s to fetch Cassandra") from None
    if result.returncode != 0:
        raise CannotStart(f"Maven can't fetch Cassandra:\n{result.stdout}{result.stderr}")
    part.rename(jars)
