"""Both locks pin all that pyproject.toml asks for, with hashes and without a host."""

import re
import tomllib
from typing import Any

import pytest

from tests.repo import ROOT

SERVER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SDK: dict[str, Any] = tomllib.loads((ROOT / "sdk_py" / "pyproject.toml").read_text())
LOCKS = ("requirements-dev.lock", "requirements-serve.lock")
# name==version, perhaps a marker, then its hashes on lines of their own
PINNED = re.compile(r"^([a-z0-9-]+)==([^ ]+) .*\\\n((?:    --hash=.*\n)+)", re.MULTILINE)
ADVICE = "run `make lock`"


def read(lock: str) -> str:
    return (ROOT / lock).read_text()


def pins(lock: str) -> dict[str, tuple[str, str]]:
    """Versions and hashes by name."""
    return {name: (version, hashes) for name, version, hashes in PINNED.findall(read(lock))}


def names(requirements: list[str]) -> set[str]:
    """Whatever is asked for, but our own distribution."""
    return {re.split(r"[^a-z0-9-]", one)[0] for one in requirements} - {"pushlane"}


def needed_to_serve() -> set[str]:
    return names(
        SERVER["project"]["dependencies"]
        + SDK["project"]["dependencies"]
        + SDK["project"]["optional-dependencies"]["cli"]
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_has_a_version_and_hashes(lock: str) -> None:
    requirements = [line for line in read(lock).splitlines() if line and line[0] not in " #"]
    assert len(requirements) == len(PINNED.findall(read(lock))) > 0


@pytest.mark.parametrize("lock", LOCKS)
def test_it_names_no_host_and_no_path(lock: str) -> None:
    text = read(lock)
    assert "://" not in text
    assert "--index" not in text
    assert "\n-e" not in text


def test_the_one_of_developers_is_up_to_date() -> None:
    found = pins("requirements-dev.lock")
    groups = SERVER["dependency-groups"]
    for pinned in [*groups["build"], *(one for one in groups["dev"] if isinstance(one, str))]:
        name, version = pinned.split("==")
        assert found[name][0] == version, ADVICE
    extras = SERVER["project"]["optional-dependencies"].values()
    wanted = names([name for extra in extras for name in extra])
    assert needed_to_serve() | wanted <= found.keys(), ADVICE


def test_the_one_of_servers_is_up_to_date_and_slim() -> None:
    found = pins("requirements-serve.lock").keys()
    assert needed_to_serve() | {"hatchling"} <= found, ADVICE
    extras = SERVER["project"]["optional-dependencies"].values()
    assert not names([name for extra in extras for name in extra]) & found, ADVICE
    assert not {"mypy", "pytest", "ruff", "numpy"} & found, ADVICE


def test_both_have_the_same_versions_and_hashes() -> None:
    everything = pins("requirements-dev.lock").items()
    assert pins("requirements-serve.lock").items() <= everything, ADVICE
