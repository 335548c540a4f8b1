"""What a Cassandra node needs before it starts: jars, configuration, logging, its command line.

The jars are fetched once through Maven, and kept in `.venv/services` or in `PUSHLANE_JARS`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tools.services.folder import locked
from tools.services.process import CannotStart, need

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


MAIN = "org.apache.cassandra.service.CassandraDaemon"

LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level [%thread] %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""

JAVA_17 = [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]


class Options(NamedTuple):
    """How nodes run, beside where."""

    sync: str = "periodic"
    """`batch`: a write is answered after its fsync, which one node alone needs to be durable."""
    quick: bool = True
    """Start fast and stay slow: for tests, not for benchmarks."""
    heap_mb: int = 512
    dynamic_snitch: bool = True
    """Ask replicas in the order of how fast they were lately; else in that of the ring."""


def configuration(host: str, seeds: Sequence[str], token: int, port: int, storage_port: int,
                  options: Options) -> dict[str, Any]:  # fmt: skip
    """cassandra.yaml, small: what stands in no list here has its default."""
    if options.sync == "periodic":
        commit_log = {"commitlog_sync_period": "10000ms"}
    else:
        # Past the page cache where the disk can: half the time of syncing a mapped file.
        commit_log = {"commitlog_disk_access_mode": "auto"}
    seed_provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": ",".join(f"{seed}:{storage_port}" for seed in seeds)}],
    }
    return {
        "cluster_name": "pushlane",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "dynamic_snitch": options.dynamic_snitch,
        "num_tokens": 1,
        "initial_token": str(token),
        "seed_provider": [seed_provider],
        "listen_address": host,
        "rpc_address": host,
        "native_transport_port": port,
        "storage_port": storage_port,
        "commitlog_sync": options.sync,
        **commit_log,
        # Small, for a developer's machine.
        "commitlog_total_space": "256MiB",
        "file_cache_size": "64MiB",
        "networking_cache_size": "32MiB",
        "key_cache_size": "8MiB",
        "auto_snapshot": False,
        # Patient: machines that run tests are slow at times, and that is no failure.
        "read_request_timeout": "10s",
        "range_request_timeout": "10s",
        "write_request_timeout": "10s",
        "cas_contention_timeout": "5s",
        "batch_size_warn_threshold": "256KiB",
        "batch_size_fail_threshold": "1024KiB",
    }


def write_files(folder: Path, settings: dict[str, Any]) -> None:
    """JSON is YAML."""
    (folder / "cassandra.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
    (folder / "logback.xml").write_text(LOGBACK)


def command(java: str, jars: Path, folder: Path, options: Options) -> list[str]:
    heap = f"{options.heap_mb}m"
    return [
        java,
        *JAVA_17,
        *(["-XX:TieredStopAtLevel=1"] if options.quick else []),
        *("-XX:+UseSerialGC", f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=256m"),
        *("-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"),
        "-Dcassandra.ring_delay_ms=1000",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.superuser_setup_delay_ms=0",
        "-Dcassandra.consistent.rangemovement=false",
        f"-Dcassandra.config={(folder / 'cassandra.yaml').as_uri()}",
        f"-Dcassandra.storagedir={folder / 'data'}",
        f"-Dlogback.configurationFile={folder / 'logback.xml'}",
        *("-cp", f"{jars}/*", MAIN),
    ]
