"""The systems that are measured: how each is started on a free loopback port.

Every system is a context manager over an empty folder that gives a `Target`: what the load
generator needs to know. `missing` says what has to be installed for it, None when all is there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateway.process import accepts, find, free_port, running

TOOLS = Path(sys.prefix) / "bench" / "bin"
"""Where `install` puts what is not a Debian package."""
RABBITMQ = Path("/usr/lib/rabbitmq/bin")
"""Beside the commands of Debian's package, which change the user before they run these."""


@dataclass(frozen=True)
class Target:
    adapter: str
    url: str
    pid: int
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    name: str
    label: str
    fsync: bool
    """Whether a message is on the disk before its publish is acknowledged."""
    start: Callable[[Path], AbstractContextManager[Target]]
    missing: Callable[[], str | None]


def nothing() -> None:
    return None


def pushlane(folder: Path) -> AbstractContextManager[Target]:
    return serving(folder, "--data", str(folder / "data"))


@contextmanager
def serving(folder: Path, *store: str) -> Iterator[Target]:
    """A server that keeps its messages there."""
    command = [sys.executable, "-c", "from pushlane.cli import main; main()", "serve"]
    command += ["--listen", "127.0.0.1:0", *store]
    output = folder / "output.txt"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PUSHLANE_")}

    def url() -> str | None:
        found = re.search(r"^ready on (http://\S+)$", output.read_text(), re.MULTILINE)
        return found and found[1]

    with running(command, folder, lambda: bool(url()), environment=environment) as process:
        where = url()
        assert where is not None
        yield Target("pushlane", where, process.pid)


# NATS


def nats_missing() -> str | None:
    if find("nats-server", TOOLS) is None:
        return "nats-server (go install github.com/nats-io/nats-server/v2@latest)"
    return None


def nats(sync: str | None) -> Callable[[Path], AbstractContextManager[Target]]:
    @contextmanager
    def start(folder: Path) -> Iterator[Target]:
        server = find("nats-server", TOOLS)
        assert server is not None
        port, websocket = free_port(), free_port()
        interval = "" if sync is None else f", sync_interval: {sync}"
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'websocket {{ host: "127.0.0.1", port: {websocket}, no_tls: true,'
            " compression: false }\n"
            f'jetstream {{ store_dir: "{folder / "data"}"{interval} }}\n'
        )
        command = [server, "-c", str(config)]
        with running(command, folder, lambda: accepts(websocket)) as process:
            yield Target("nats", f"ws://127.0.0.1:{websocket}", process.pid)

    return start


# RabbitMQ


def rabbitmq_missing() -> str | None:
    if find("rabbitmq-server", RABBITMQ) is None or find("epmd") is None:
        return "rabbitmq-server (on Debian: apt-get install rabbitmq-server)"
    return None


def rabbitmq(queue_type: str) -> Callable[[Path], AbstractContextManager[Target]]:
    @contextmanager
    def start(folder: Path) -> Iterator[Target]:
        server, epmd = find("rabbitmq-server", RABBITMQ), find("epmd")
        assert server is not None
        assert epmd is not None
        names, web = free_port(), free_port()
        environment = _rabbitmq_environment(folder, names, web)
        mapper = [epmd, "-port", str(names), "-address", "127.0.0.1"]
        (folder / "epmd").mkdir()
        with (
            running(mapper, folder / "epmd", lambda: accepts(names), environment=environment),
            running([server], folder, lambda: accepts(web), environment=environment) as process,
        ):
            extra: dict[str, object] = {
                "queue_type": queue_type,
                "login": {"user": "guest", "password": "guest"},
            }
            yield Target("rabbitmq", f"ws://127.0.0.1:{web}/ws", process.pid, extra)

    return start


def _rabbitmq_environment(folder: Path, names: int, web: int) -> dict[str, str]:
    """Everything in the folder, every port on loopback."""
    (folder / "plugins").write_text("[rabbitmq_stomp,rabbitmq_web_stomp].\n")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{free_port()}\n"
        f"stomp.listeners.tcp.1 = 127.0.0.1:{free_port()}\n"
        f"web_stomp.tcp.ip = 127.0.0.1\nweb_stomp.tcp.port = {web}\n"
    )
    ours = {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_NODENAME": f"bench{names}@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **ours}


# Redis


def redis_missing() -> str | None:
    if find("redis-server") is None:
        return "redis-server (on Debian: apt-get install redis-server)"
    return None


def redis(appendfsync: str) -> Callable[[Path], AbstractContextManager[Target]]:
    @contextmanager
    def start(folder: Path) -> Iterator[Target]:
        server = find("redis-server")
        assert server is not None
        port = free_port()
        options = {
            "bind": "127.0.0.1", "port": str(port), "dir": str(folder), "save": "",
            "appendonly": "yes", "appendfsync": appendfsync,
        }  # fmt: skip
        command = [server]
        for name, value in options.items():
            command += [f"--{name}", value]
        with running(command, folder, lambda: accepts(port)) as process:
            yield Target("redis", f"redis://127.0.0.1:{port}", process.pid)

    return start


PUSHLANE = System("pushlane", "Pushlane", True, pushlane, nothing)
NATS = System("nats", "NATS JetStream (WebSocket)", False, nats(None), nats_missing)
RABBIT = System(
    "rabbitmq", "RabbitMQ Web-STOMP, classic", True, rabbitmq("classic"), rabbitmq_missing
)
SYSTEMS = [
    PUSHLANE,
    NATS,
    System("nats-sync", "NATS, sync always", True, nats("always"), nats_missing),
    RABBIT,
    System("rabbitmq-quorum", "RabbitMQ, quorum", True, rabbitmq("quorum"), rabbitmq_missing),
    System("redis", "Redis Streams (TCP), everysec", False, redis("everysec"), redis_missing),
    System("redis-always", "Redis Streams, fsync always", True, redis("always"), redis_missing),
]
