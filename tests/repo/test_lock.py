"""requirements-dev.lock pins all that pyproject.toml asks for, with hashes and without a host."""

import re
import tomllib

from tests.repo import ROOT

LOCK = (ROOT / "requirements-dev.lock").read_text()
# name==version, perhaps a marker, then its hashes on lines of their own
FOUND = re.findall(r"^([a-z0-9-]+)==([^ ]+) .*\\\n    --hash=sha256:", LOCK, re.MULTILINE)
PINS = dict(FOUND)


def test_every_requirement_has_a_version_and_hashes() -> None:
    requirements = [line for line in LOCK.splitlines() if line and line[0] not in " #"]
    assert len(requirements) == len(FOUND) > 0


def test_it_names_no_host_and_no_path() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK
    assert "\n-e" not in LOCK


def test_it_is_up_to_date() -> None:
    server = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sdk = tomllib.loads((ROOT / "sdk_py" / "pyproject.toml").read_text())["project"]
    for pinned in server["dependency-groups"]["dev"]:
        name, version = pinned.split("==")
        assert PINS[name] == version, "run `make lock`"
    needed = server["project"]["dependencies"] + sdk["dependencies"]
    for project in (server["project"], sdk):
        needed += [name for extra in project["optional-dependencies"].values() for name in extra]
    names = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in needed}
    assert names - {"pushlane"} <= PINS.keys(), "run `make lock`"
