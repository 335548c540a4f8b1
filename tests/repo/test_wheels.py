"""Both distributions build, contain what they should, and work in an environment of their own.

Everything comes from this machine: the wheels are built with the installed hatchling, and what they
depend on is in the cache that `make setup` filled.
"""

import os
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.gateway.process import environment
from tests.repo import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
UV = Path(sys.prefix, "bin", "uv")
FOLDERS = {"pushlane": ROOT / "sdk_py", "pushlane_server": ROOT}
PACKAGES = {
    "pushlane": {"pushlane"},
    "pushlane_server": {
        "pushlane_dispatcher",
        "pushlane_gateway",
        "pushlane_leases",
        "pushlane_spark",
        "pushlane_storage",
    },
}

# Imports every module below the packages named, so that an undeclared dependency shows. `-NAME`
# leaves a package out, for what an extra brings.
IMPORT_ALL = """
import importlib, pkgutil, sys
leave = tuple(name[1:] + "." for name in sys.argv[1:] if name.startswith("-"))
for name in sys.argv[1:]:
    if name.startswith("-"):
        continue
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.startswith(leave):
            importlib.import_module(module.name)
"""
COMMANDS = "pushlane.commands"
SPARK = "pushlane_spark"


def run(*command: str | Path, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"UV_CACHE_DIR": str(Path(sys.prefix, "uv-cache"))}
    variables.pop("PYTHONPATH", None)
    result = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    assert result.returncode == status, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both sdists, and both wheels built from the sdists."""
    folder = tmp_path_factory.mktemp("built")
    options = ["--offline", "--no-build-isolation", f"--python={sys.executable}"]
    for source in FOLDERS.values():
        run(UV, "build", *options, f"--out-dir={folder}", source, cwd=folder)
    return folder


def install(built: Path, venv: Path, requirement: str) -> Path:
    """Install a requirement from the built wheels into a fresh environment; returns its bin."""
    run(UV, "venv", f"--python={sys.executable}", venv, cwd=built)
    lock = ROOT / "requirements-dev.lock"
    options = ["--offline", f"--python={venv}", f"--find-links={built}", f"--constraint={lock}"]
    run(UV, "pip", "install", *options, requirement, cwd=built)
    return venv / "bin"


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


def top_level(names: Iterable[str]) -> set[str]:
    return {name.split("/")[0] for name in names}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_has_its_packages_and_nothing_else(built: Path, name: str) -> None:
    with zipfile.ZipFile(built / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    info = f"{name}-{VERSION}.dist-info"
    assert top_level(names) == PACKAGES[name] | {info}
    assert {f"{package}/py.typed" for package in PACKAGES[name]} <= names
    assert f"{info}/licenses/LICENSE" in names


@pytest.mark.parametrize("name", PACKAGES)
def test_an_sdist_has_what_its_wheel_has(built: Path, name: str) -> None:
    with tarfile.open(built / f"{name}-{VERSION}.tar.gz") as sdist:
        names = [member.name for member in sdist.getmembers() if member.isfile()]
    with zipfile.ZipFile(built / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        modules = {module for module in wheel.namelist() if module.endswith((".py", ".typed"))}
    assert all(any(name.endswith(f"/{module}") for name in names) for module in modules)
    assert not [name for name in names if "/tests/" in name]


def test_the_server_installs_and_runs(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane-server")
    packages = sorted(PACKAGES["pushlane"] | PACKAGES["pushlane_server"])
    run(programs / "python", "-c", IMPORT_ALL, *packages, f"-{SPARK}", cwd=tmp_path)
    version = run(programs / "pushlane", "--version", cwd=tmp_path)
    assert version.stdout == f"pushlane {VERSION}\n"
    assert serve_once(programs / "pushlane", tmp_path).startswith("ready on http://127.0.0.1:")


def test_the_spark_jobs_install_with_their_extra(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane-server[spark]")
    run(programs / "python", "-c", IMPORT_ALL, SPARK, cwd=tmp_path)


def test_the_sdk_installs_alone(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane")
    run(programs / "python", "-c", IMPORT_ALL, "pushlane", f"-{COMMANDS}", cwd=tmp_path)
    without = run(programs / "pushlane", "--version", cwd=tmp_path, status=1)
    assert "pip install 'pushlane[cli]'" in without.stderr


def test_the_command_line_installs_without_the_server(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane[cli]")
    run(programs / "python", "-c", IMPORT_ALL, "pushlane", cwd=tmp_path)
    version = run(programs / "pushlane", "--version", cwd=tmp_path)
    assert version.stdout == f"pushlane {VERSION}\n"


def test_both_have_one_version_and_one_license() -> None:
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in FOLDERS.values()
    ]
    assert [project["version"] for project in projects] == [VERSION, VERSION]
    assert f"pushlane[cli]=={VERSION}" in projects[1]["dependencies"]
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "sdk_py" / "LICENSE").read_bytes()
