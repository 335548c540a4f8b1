"""Both distributions build, contain what they should, and work in an environment of their own.

Everything comes from this machine: the wheels are built with the installed hatchling, and what they
depend on is in the cache that `make setup` filled.
"""

import email
import json
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.repo import ROOT
from tests.repo.environments import IMPORT_ALL, VERSION, install, run, serve_once

FOLDERS = {"pushlane": ROOT / "sdk_py", "pushlane_server": ROOT}
PACKAGES = {
    "pushlane": {"pushlane"},
    "pushlane_server": {
        "pushlane_dispatcher",
        "pushlane_gateway",
        "pushlane_history",
        "pushlane_leases",
        "pushlane_spark",
        "pushlane_storage",
    },
}
EVERYTHING = sorted(PACKAGES["pushlane"] | PACKAGES["pushlane_server"])
COMMANDS = "pushlane.commands"
SPARK = "pushlane_spark"
CLUSTER = ("pushlane_leases.redis", "pushlane_storage.cassandra.suspects")
"""What imports Redis' client and Cassandra's driver."""


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


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_registry_shows_stands_alone(built: Path, name: str) -> None:
    with zipfile.ZipFile(built / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        shown = email.message_from_bytes(wheel.read(f"{name}-{VERSION}.dist-info/METADATA"))
    assert shown["Description-Content-Type"] == "text/markdown"
    text = shown.get_payload()
    assert isinstance(text, str)
    assert "pip install" in text
    assert relative_links(text) == []


def test_what_npm_shows_stands_alone() -> None:
    assert relative_links((ROOT / "sdk_js" / "README.md").read_text()) == []


def relative_links(text: str) -> list[str]:
    """Links and pictures that lead nowhere outside the repository."""
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"", text)
    return [one or other for one, other in links if not (one or other).startswith("https://")]


def test_a_relative_link_is_found() -> None:
    text = '[a](docs/a.md) [b](https://example.org) <img src="c.png"> ![d](d.png)'
    assert relative_links(text) == ["docs/a.md", "c.png", "d.png"]


def test_the_server_installs_and_runs(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane-server")
    left_out = [f"-{name}" for name in (SPARK, *CLUSTER)]
    run(programs / "python", "-c", IMPORT_ALL, *EVERYTHING, *left_out, cwd=tmp_path)
    version = run(programs / "pushlane", "--version", cwd=tmp_path)
    assert version.stdout == f"pushlane {VERSION}\n"
    assert serve_once(programs / "pushlane", tmp_path).startswith("ready on http://127.0.0.1:")


def test_what_a_cluster_needs_installs_with_its_extra(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane-server[cluster]")
    run(programs / "python", "-c", IMPORT_ALL, *EVERYTHING, f"-{SPARK}", cwd=tmp_path)


def test_the_spark_jobs_install_with_their_extra(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane-server[spark]")
    run(programs / "python", "-c", IMPORT_ALL, SPARK, cwd=tmp_path)


def test_the_sdk_installs_alone(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane")
    run(programs / "python", "-c", IMPORT_ALL, "pushlane", f"-{COMMANDS}", cwd=tmp_path)
    told = run(
        programs / "python", "-c", "import pushlane as p; print(p.__version__)", cwd=tmp_path
    )
    assert told.stdout == f"{VERSION}\n"
    without = run(programs / "pushlane", "--version", cwd=tmp_path, status=1)
    assert "pip install 'pushlane[cli]'" in without.stderr


def test_the_command_line_installs_without_the_server(built: Path, tmp_path: Path) -> None:
    programs = install(built, tmp_path / "venv", "pushlane[cli]")
    run(programs / "python", "-c", IMPORT_ALL, "pushlane", cwd=tmp_path)
    version = run(programs / "pushlane", "--version", cwd=tmp_path)
    assert version.stdout == f"pushlane {VERSION}\n"


def test_all_have_one_version_and_one_license() -> None:
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in FOLDERS.values()
    ]
    npm = json.loads((ROOT / "sdk_js" / "package.json").read_text())
    assert {project["version"] for project in (*projects, npm)} == {VERSION}
    assert {project["license"] for project in (*projects, npm)} == {"Apache-2.0"}
    assert f"pushlane[cli]=={VERSION}" in projects[1]["dependencies"]
    for folder in ("sdk_py", "sdk_js"):
        assert (ROOT / "LICENSE").read_bytes() == (ROOT / folder / "LICENSE").read_bytes()
