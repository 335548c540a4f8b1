"""What `make` would do from each state of a checkout; nothing is installed here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repo import ROOT

FILES = (
    "Makefile",
    "pyproject.toml",
    "sdk_py/pyproject.toml",
    "requirements-serve.lock",
    "requirements-dev.lock",
    "sdk_js/package.json",
    "sdk_js/package-lock.json",
    "sdk_js/scripts/demo.mjs",
)
SLIM = "requirements-serve.lock"
FULL = "requirements-dev.lock"
WIDTH = 100


class Checkout:
    """A copy of all that make looks at. Each change is later than those before it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = 1_000_000_000
        for name in FILES:
            self.touch(name)
            shutil.copy(ROOT / name, folder / name)
        for name in ("sdk_js/src/index.ts", "sdk_js/demo/index.html"):
            self.touch(name)
        for name in FILES:
            self.touch(name)

    def touch(self, *names: str) -> None:
        self._now += 10
        for name in names:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (self._now, self._now))

    def would(self, target: str) -> str:
        """The commands of `make TARGET`."""
        done = subprocess.run(
            ["make", "--dry-run", "--no-print-directory", target],
            cwd=self._folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def installs(self, target: str) -> list[str]:
        """The locks that `make TARGET` installs."""
        return re.findall(r"--require-hashes -r (\S+)", self.would(target))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_fresh_one(checkout: Checkout) -> None:
    assert "tools/bootstrap" in checkout.would("serve")
    for target in ("serve", "demo", "package"):
        assert checkout.installs(target) == [SLIM]
    for target in ("setup", "check", "test", "services", "bench-spark", "lock"):
        assert checkout.installs(target) == [SLIM, FULL]


def test_after_serve(checkout: Checkout) -> None:
    checkout.touch(".venv/can-serve")
    assert checkout.would("serve") == ".venv/bin/pushlane serve\n"
    assert checkout.installs("package") == []
    assert checkout.installs("setup") == [FULL]
    assert checkout.installs("test") == [FULL]


def test_after_setup(checkout: Checkout) -> None:
    checkout.touch(".venv/can-serve")
    checkout.touch(".venv/ready")
    assert checkout.would("serve") == ".venv/bin/pushlane serve\n"
    assert checkout.installs("test") == []


def test_after_a_lock_has_changed(checkout: Checkout) -> None:
    checkout.touch(".venv/can-serve")
    checkout.touch(".venv/ready")
    checkout.touch(FULL)
    assert checkout.installs("serve") == []
    assert checkout.installs("setup") == [FULL]
    checkout.touch("pyproject.toml", SLIM)
    assert checkout.installs("serve") == [SLIM]
    assert checkout.installs("setup") == [SLIM, FULL]
    checkout.touch(".venv/can-serve")  # by `make serve`, which may have put back the editable ones
    assert checkout.installs("setup") == [FULL]


def test_demo_and_package_build_the_javascript_sdk(checkout: Checkout) -> None:
    for target in ("demo", "package"):
        assert "npm ci" in checkout.would(target)
        assert "npm run --silent build" in checkout.would(target)
    checkout.touch(".venv/can-serve")
    checkout.touch("sdk_js/node_modules/ready")
    checkout.touch("sdk_js/dist/ready")
    assert checkout.would("package").strip() == ".venv/bin/python -m tools.package"


def test_the_help_is_readable() -> None:
    lines = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert {"serve", "setup", "demo", "package", "test"} <= set(names)
    assert len({len(line) - len(line.split(maxsplit=1)[1]) for line in lines}) == 1
    assert max(map(len, lines)) <= WIDTH
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(" ".join(phony).split())
