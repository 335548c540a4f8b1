"""Fresh environments with what we build, made offline from the cache that `make setup` filled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

from tests.gateway.process import environment
from tests.repo import ROOT
from tools.package import UV

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LOCK = ROOT / "requirements-dev.lock"

# Imports every module below the packages named, so that an undeclared dependency shows. `-NAME`
# leaves a module out, or what is in a package, for what an extra brings.
IMPORT_ALL = """
import importlib, pkgutil, sys
leave = {name[1:] for name in sys.argv[1:] if name.startswith("-")}
for name in sys.argv[1:]:
    if name.startswith("-"):
        continue
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not any(f"{module.name}.".startswith(f"{other}.") for other in leave):
            importlib.import_module(module.name)
"""


def run(*command: str | Path, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    variables = environment() | {"UV_CACHE_DIR": str(Path(sys.prefix, "uv-cache"))}
    variables.pop("PYTHONPATH", None)
    result = subprocess.run(
        command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


def make_environment(venv: Path) -> Path:
    """An empty one; its folder of programs."""
    run(UV, "venv", f"--python={sys.executable}", venv, cwd=venv.parent)
    return venv / "bin"


def install(built: Path, venv: Path, *requirements: str) -> Path:
    """Install from the built wheels into a fresh environment; returns its bin."""
    programs = make_environment(venv)
    options = ["--offline", f"--python={venv}", f"--find-links={built}", f"--constraint={LOCK}"]
    run(UV, "pip", "install", *options, *requirements, cwd=built)
    return programs


def serve_once(pushlane: Path, folder: Path) -> str:
    """Start a server and stop it; the line that it printed."""
    server = subprocess.Popen(
        [pushlane, "serve", "--listen", "127.0.0.1:0"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = threading.Timer(60, server.kill)
    deadline.start()
    with server:
        assert server.stdout is not None
        ready = server.stdout.readline()
        server.terminate()
        assert server.wait() == 0
    deadline.cancel()
    return ready


def megabytes(folder: Path) -> float:
    """What is in a folder; a file with several names counts once, as `du` counts."""
    seen = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(parent, name))
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values()) / 1e6
