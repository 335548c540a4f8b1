"""Installs the peers, for who asks for it: NATS with Go, the others as Debian packages."""

from __future__ import annotations

import os
import subprocess

from bench.gateway.machine import ROOT
from bench.gateway.systems import TOOLS, nats_missing, rabbitmq_missing, redis_missing

NATS = "github.com/nats-io/nats-server/v2@v2.15.2"


def install_peers() -> None:
    """What can't be installed is said, and left out later."""
    if nats_missing() is not None:
        _try(["go", "install", NATS], {**os.environ, "GOBIN": str(TOOLS)})
    for command, missing in (
        ("redis-server", redis_missing),
        ("rabbitmq-server", rabbitmq_missing),
    ):
        if missing() is not None:
            _try([str(ROOT / "tools" / "install-debian"), command, command], dict(os.environ))


def _try(command: list[str], environment: dict[str, str]) -> None:
    try:
        subprocess.run(command, env=environment, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"can't install: {error}")
