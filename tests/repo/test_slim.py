"""What `make serve` installs is little, serves, and says what it lacks for the rest."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.console import read_examples
from tests.docs.page import read_blocks
from tests.repo import ROOT
from tests.repo.environments import make_environment, megabytes, run, serve_once
from tools.package import UV

MOST_MEGABYTES = 300


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the rule of `.venv/can-serve` in the Makefile does it, but offline."""
    venv = tmp_path_factory.mktemp("slim") / "venv"
    programs = make_environment(venv)
    install = [str(UV), "pip", "install", "--quiet", "--offline", f"--python={venv}"]
    run(*install, "--require-hashes", "-r", "requirements-serve.lock", cwd=ROOT)
    run(*install, "--no-deps", "--no-build-isolation", "-e", "sdk_py", "-e", ".", cwd=ROOT)
    return programs


def test_it_is_small(programs: Path) -> None:
    """Beside it there are uv, pip, and uv's cache, which shares its files where it can."""
    libraries = Path(sys.prefix, "lib")
    tools = sum(megabytes(found) for name in ("uv", "pip") for found in libraries.rglob(name))
    assert 2 * megabytes(programs.parent) + tools + megabytes(UV) < MOST_MEGABYTES


def test_it_serves(programs: Path, tmp_path: Path) -> None:
    assert serve_once(programs / "pushlane", tmp_path).startswith("ready on http://127.0.0.1:")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve --store cassandra://127.0.0.1/pushlane", "cluster"),
        ("serve --leases redis://127.0.0.1", "cluster"),
        ("store migrate cassandra://127.0.0.1/pushlane", "cluster"),
        ("store copy cassandra://127.0.0.1/pushlane data", "cluster"),
        ("jobs metrics --store sqlite:data --out report", "spark"),
        ("jobs audit history", "spark"),
    ],
)
def test_what_needs_more_names_the_extra(
    programs: Path, tmp_path: Path, command: str, extra: str
) -> None:
    ended = run(programs / "pushlane", *command.split(), cwd=tmp_path, status=2)
    assert f"pip install 'pushlane-server[{extra}]' (in a checkout: make setup)" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_page_shows_it(programs: Path, tmp_path: Path) -> None:
    blocks = read_blocks((ROOT / "docs" / "install.md").read_text())
    [example] = [
        example
        for block in blocks
        if block.language == "console"
        for example in read_examples(block.text, block.line)
        if example.command.startswith("pushlane ")
    ]
    command = shlex.split(example.command)
    ended = run(programs / command[0], *command[1:], cwd=tmp_path, status=2)
    assert ended.stderr == example.shown


def test_the_doctor_names_it_too(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "pushlane.toml").write_text(
        'store = "cassandra://127.0.0.1/pushlane"\nleases = "redis://127.0.0.1"\n'
    )
    told = run(programs / "pushlane", "doctor", cwd=tmp_path, status=1)
    assert told.stdout.count("pip install 'pushlane-server[cluster]'") == 2
