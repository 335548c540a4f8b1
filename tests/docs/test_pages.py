"""Every block of every page is run, checked by a test of its own, or says why it can't be."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pushlane_gateway.configuration.load import load
from tests.docs.console import read_examples
from tests.docs.machine import NOWHERE, Machine
from tests.docs.page import PAGES, Block, name_of, read_blocks
from tests.docs.places import Places, places_of
from tests.docs.python import Python
from tests.gateway.process import environment
from tests.repo import ROOT

SHARED = {"docs/guide.md"}
"""Pages whose Python is one session; elsewhere each block is a program."""

ELSEWHERE = {
    ("docs/architecture.md", "mermaid"): "tests/dispatcher/core/test_life.py",
    ("docs/cassandra.md", "console"): "tests/storage/cassandra/test_schema.py",
    ("docs/cluster.md", "console"): "tests/tools/test_cluster.py",
    ("docs/demo.md", "console"): "tests/tools/demo/test_main.py",
    ("docs/embedded-store.md", "console"): "tests/storage/test_store_command.py",
    ("docs/http.md", "http"): "tests/gateway/http/test_page_of_docs.py",
    ("docs/install.md", "console"): "tests/repo/test_install_page.py",
    ("docs/install.md", "sh"): "tests/repo/test_install_page.py",
    ("docs/javascript.md", "html"): "sdk_js/test/browser/docs.test.ts",
    ("docs/jobs.md", "python"): "tests/spark/test_jobs_page.py",
    ("docs/jobs.md", "sh"): "tests/spark/test_jobs_page.py",
    ("docs/metrics.md", "python"): "tests/spark/test_page_of_metrics.py",
    ("docs/metrics.md", "text"): "tests/spark/test_page_of_metrics.py",
    ("docs/metrics.md", "toml"): "tests/spark/test_page_of_metrics.py",
    ("docs/retention.md", "python"): "tests/spark/retaining/test_page_of_docs.py",
    ("docs/protocol.md", "json"): "tests/wire",
    ("docs/benchmarks.md", "sh"): "tests/bench",
    ("docs/redis.md", "console"): "tests/docs/test_redis.py",
    ("docs/history.md", "python"): "tests/spark/auditing/test_recorded.py",
    ("docs/history.md", "toml"): "tests/spark/auditing/test_recorded.py",
    ("docs/spark.md", "python"): "tests/spark/test_page_of_docs.py",
    ("docs/spark.md", "sh"): "tests/spark/test_page_of_docs.py",
    ("docs/worker.md", "js"): "tests/docs/test_worker.py",
    ("docs/worker.md", "python"): "tests/docs/test_worker.py",
}
"""Blocks that other tests look after."""

RUN = {"", "console", "js", "python", "toml", "ts"}
"""What is run here; without a language it is a picture, and nothing to run."""


@contextmanager
def machine_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, places: Places = NOWHERE
) -> Iterator[Machine]:
    machine = Machine(folder, places)
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PUSHLANE_URL", machine.url)
    monkeypatch.chdir(machine.folder)
    try:
        yield machine
    finally:
        machine.stop()


def run_page(name: str, text: str, machine: Machine) -> list[str]:
    """Run all blocks of a page in their order; the languages of those that were."""
    python = Python(name, shared=name in SHARED)
    done = []
    try:
        for block in read_blocks(text):
            if block.why_not is None and (name, block.language) not in ELSEWHERE:
                run_block(block, machine, python)
                done.append(block.language)
    finally:
        python.close()
    return done


def run_block(block: Block, machine: Machine, python: Python) -> None:
    assert block.language in RUN, f"line {block.line}: who runs {block.language}?"
    if block.language == "python":
        python.run(block, machine.here(block.text))
    elif block.language == "console":
        for example in read_examples(block.text, block.line):
            machine.run(example)
    elif block.language == "toml":
        read_configuration(block.text, machine.folder)
    elif block.language == "js":
        run_javascript(machine.here(block.text))
    elif block.language == "ts":
        run_typescript(machine.here(block.text), machine.folder)


def read_configuration(text: str, folder: Path) -> None:
    """A file that `pushlane serve` would take."""
    tomllib.loads(text)
    path = folder / "example.toml"
    path.write_text(text)
    load(str(path), {})


def run_javascript(source: str, shown: list[str] | None = None) -> None:
    """In Node, whose WebSocket is that of browsers."""
    done = subprocess.run(
        ["node", "--experimental-websocket", "--no-warnings", "--input-type=module", "-"],
        input=source,
        capture_output=True,
        text=True,
        timeout=60,
    )
    shown = logged(source) if shown is None else shown
    assert (done.stderr, done.stdout.splitlines()) == ("", shown)


def logged(source: str) -> list[str]:
    """What the comments say that is logged."""
    return [row.split("// ")[1] for row in source.splitlines() if "console.log(" in row]


def run_typescript(source: str, folder: Path) -> None:
    """Compiled in strict mode, then run."""
    path = folder / "example.ts"
    path.write_text(source)
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]
    bin = ROOT / "sdk_js" / "node_modules" / ".bin"
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        [bin / "tsc", *options, path],
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    run_javascript((folder / "example.js").read_text(), logged(source))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = name_of(page), page.read_text()
    commands = "".join(block.text for block in read_blocks(text) if is_command(name, block))
    with machine_for(tmp_path, monkeypatch, places_of(commands)) as machine:
        run_page(name, text, machine)


def is_command(name: str, block: Block) -> bool:
    return block.language == "console" and (name, "console") not in ELSEWHERE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "line 2: echo one"),
        ("```console\n$ export X=1\n$ echo $X\n2\n```\n", "line 3"),
        ("```console\n$ false || echo 'pushlane: no' >&2\n…\n```\n", "line 2"),
        ("```python\nprint(1)  # 2\n```\n", "line 2"),
        ("```ruby\nputs 1\n```\n", "who runs ruby"),
    ],
)
def test_a_page_that_is_wrong_is_found(
    text: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine_for(tmp_path, monkeypatch) as machine, pytest.raises(AssertionError, match=fault):
        run_page("page.md", text, machine)


def test_a_page_that_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "```console\n$ export X=1\n$ echo $X; pwd\n1\n…/home\n$ sleep 9\n^C\n```\n"
        "```\na picture\n```\n<!-- not run: why -->\n```sh\nexit 1\n```\n"
        "```python\nprint(1)  # 1\n```\n"
    )
    with machine_for(tmp_path, monkeypatch) as machine:
        assert run_page("page.md", text, machine) == ["console", "", "python"]


def test_what_is_looked_after_elsewhere_is_still_there() -> None:
    found = {(name_of(page), block.language) for page in PAGES for block in blocks_of(page)}
    assert ELSEWHERE.keys() <= found


def test_what_is_not_run_is_little_and_says_why() -> None:
    marked = [
        (name_of(page), block.language)
        for page in PAGES
        for block in blocks_of(page)
        if block.why_not
    ]
    firewall = ("docs/cluster.md", "sh")
    containers = [("docs/containers.md", "sh")] * 3
    assert marked == [
        firewall,
        *containers,
        ("docs/operating.md", "nginx"),
        ("docs/operating.md", "sh"),
    ]


def blocks_of(page: Path) -> list[Block]:
    return read_blocks(page.read_text())
