"""docs/install.md: its commands are run, with the packages that are built here and no network.

`pip` and `npm` are programs of ours that do what they are told offline, in a reader's home.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import is_shown, read_examples
from tests.docs.machine import Machine
from tests.docs.page import read_blocks
from tests.gateway.process import environment
from tests.repo import ROOT
from tests.repo.environments import LOCK, VERSION, make_environment
from tools.package import DIST, UV, build_npm, describe

BLOCKS = read_blocks((ROOT / "docs" / "install.md").read_text())
COMMANDS = [
    command
    for block in BLOCKS
    if block.language == "sh"
    for command in block.text.replace("\\\n", "").splitlines()
]
LOCAL = [command for command in COMMANDS if "pushlane/dist/" in command]
RELEASED = [command for command in COMMANDS if command not in LOCAL]
EXAMPLES = {
    example.command: example
    for block in BLOCKS
    if block.language == "console"
    for example in read_examples(block.text, block.line)
}

LOOK = """
import importlib.util, importlib.metadata as metadata
names = ["pushlane", "cyclopts", "pushlane_gateway", "cassandra", "redis", "pyspark"]
found = [name for name in names if importlib.util.find_spec(name)]
print(metadata.version("pushlane"), *found)
"""
SDK = ["pushlane"]
CLI = [*SDK, "cyclopts"]
SERVER = [*CLI, "pushlane_gateway"]
EXTRAS = [*SERVER, "cassandra", "redis", "pyspark"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    """With the checkout's dist in it, `pip`, and `npm`."""
    home = tmp_path_factory.mktemp("home")
    (home / "pushlane").mkdir()
    (home / "pushlane" / "dist").symlink_to(built)
    build_npm(built)
    options = f"--quiet --offline --find-links={built} --constraint={LOCK}"
    write_program(home / "pip", f'exec {UV} pip "$1" {options} --python=venv "${{@:2}}"')
    return home


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{line}\n")
    path.chmod(0o755)


def do(command: str, home: Path, folder: Path) -> None:
    variables = environment() | {
        "HOME": str(home),
        "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
        "UV_CACHE_DIR": str(Path(sys.prefix, "uv-cache")),
        "npm_config_offline": "true",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, command + done.stdout + done.stderr


def found_after(command: str, home: Path, folder: Path) -> list[str]:
    """What can be imported after an installation."""
    python = make_environment(folder / "venv") / "python"
    do(command, home, folder)
    told = subprocess.run([python, "-c", LOOK], cwd=folder, capture_output=True, text=True)
    version, *found = told.stdout.split()
    assert version == VERSION
    return found


@pytest.mark.parametrize(
    ("command", "found"), list(zip(LOCAL[:4], [SDK, CLI, SERVER, EXTRAS], strict=True))
)
def test_pip_with_files(home: Path, tmp_path: Path, command: str, found: list[str]) -> None:
    assert found_after(command, home, tmp_path) == found


@pytest.mark.parametrize(
    ("command", "found"), list(zip(RELEASED[:4], [SDK, CLI, SERVER, EXTRAS], strict=True))
)
def test_pip_by_name(home: Path, tmp_path: Path, command: str, found: list[str]) -> None:
    assert found_after(command, home, tmp_path) == found


def test_npm(home: Path, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "fresh", "private": true}')
    [command] = LOCAL[4:]
    do(command, home, tmp_path)
    code = 'import("pushlane").then((it) => console.log(typeof it.connect))'
    told = subprocess.run(["node", "-e", code], cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout == "function\n", told.stderr


def test_npm_by_name() -> None:
    [command] = RELEASED[4:]
    name = json.loads((ROOT / "sdk_js" / "package.json").read_text())["name"]
    assert shlex.split(command, comments=True) == ["npm", "install", name]


def test_make_package(built: Path) -> None:
    build_npm(built)
    printed = "\n".join(line.replace(str(built), DIST.name) for line in describe(built))
    assert is_shown(EXAMPLES["make package"].shown, f"== setup\n{printed}\n")


def test_make_serve(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    try:
        machine.run(EXAMPLES["make serve"])
    finally:
        machine.stop()


def test_nothing_else_is_shown() -> None:
    """tests/repo/test_slim.py runs the one without the extra."""
    extra = "pushlane serve --store cassandra://127.0.0.1/pushlane"
    assert EXAMPLES.keys() == {"make serve", "make package", extra}
