"""The operators' page names what is there: flags, metrics; and what can't be run is well-formed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from inspect import signature
from pathlib import Path

import pytest

from pushlane import testing
from pushlane_gateway.serve_command import serve
from tests.docs.machine import recipe
from tests.docs.page import read_blocks
from tests.repo import ROOT
from tests.services import service

PAGE = (ROOT / "docs" / "operating.md").read_text()
UNIT = ROOT / "deploy" / "pushlane.service"


def section(title: str) -> str:
    """From a heading to the next."""
    return re.split(r"^#+ ", PAGE.split(f"# {title}\n")[1], flags=re.MULTILINE)[0]


def test_flags() -> None:
    table = re.findall(r"^\| (`--.*?) \|", section("Starting"), re.MULTILINE)
    shown = set(re.findall(r"--([a-z-]+)", " ".join(table)))
    named = {"settings": "set"}
    flags = {named.get(name, name).replace("_", "-") for name in signature(serve).parameters}
    assert shown == flags


def test_metrics() -> None:
    replicated = testing.server(
        store=service("cassandra").cassandra_url(f"operating_{os.getpid()}"),
        arguments=["--leases", service("redis").redis_url],
        start_s=60,
    )
    shown = set(re.findall(r"`(pushlane_\w+)", section("Metrics")))
    assert shown == served_by(testing.server()) | served_by(replicated)


def served_by(server: testing.server) -> set[str]:
    with server as url, urllib.request.urlopen(f"{url}/metrics") as answer:
        return set(re.findall(r"^# HELP (\w+) ", answer.read().decode(), re.MULTILINE))


def test_make_serve_is_pushlane_serve() -> None:
    assert recipe("serve") == ".venv/bin/pushlane serve"


def test_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text, count = re.subn(
        r"^ExecStart=/opt/\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M
    )
    assert count == 1
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60
    )
    about_it = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (about_it, done.returncode) == ([], 0), done.stderr


def test_the_units_paths_are_those_of_the_page() -> None:
    text = UNIT.read_text()
    for path in ("/opt/pushlane", "/etc/pushlane/pushlane.toml", "/var/lib/pushlane"):
        assert path in text
        assert path in PAGE


def test_blocks_that_are_not_run_have_a_good_form() -> None:
    blocks = {block.language: block.text for block in read_blocks(PAGE) if block.why_not}
    lines = [line.strip() for line in blocks["nginx"].splitlines() if line.strip()]
    assert all(line[-1] in ";{}" for line in lines)
    assert blocks["nginx"].count("{") == blocks["nginx"].count("}")
    subprocess.run(["bash", "-n", "-c", blocks["sh"]], check=True, timeout=60)
