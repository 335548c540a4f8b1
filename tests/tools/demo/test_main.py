"""`make demo` as a process: what it serves, whom it obeys, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.docs.console import is_shown, read_examples
from tests.docs.page import read_blocks
from tests.repo import ROOT
from tools.demo.__main__ import PORT, main
from tools.services.ports import answers, free_port

PATIENCE_SECONDS = 120
MOST_BYTES = 200_000


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.ready = process.stdout.readline()
        self.told = process.stdout.readline()
        self.port = urlsplit(self.ready.removeprefix("ready on ")).port or 0

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with closing(connection):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/control/state").body)
        return found

    def stop(self, number: int) -> int:
        os.kill(self.process.pid, number)
        return self.process.wait(PATIENCE_SECONDS)


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(*options: str) -> Iterator[Running]:
    with start("--port", "0", *options) as process:
        try:
            yield Running(process)
        finally:
            process.terminate()  # it takes its folder with it
            process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def demo() -> Iterator[Running]:
    with running() as found:
        yield found


def test_it_says_where_it_is(demo: Running) -> None:
    assert demo.ready == f"ready on http://127.0.0.1:{demo.port}\n"
    assert str(demo.state()["url"]) in demo.told


def test_what_the_docs_show_is_what_it_prints(demo: Running) -> None:
    (block,) = read_blocks((ROOT / "docs" / "demo.md").read_text())
    (example,) = read_examples(block.text, block.line)
    assert example.command == "make demo"
    ports = {PORT: demo.port, PORT + 1: urlsplit(str(demo.state()["url"])).port}
    shown = re.sub(r"(?<=:)\d+\b", lambda port: str(ports[int(port[0])]), example.shown)
    assert is_shown(shown, demo.ready + demo.told)


def test_the_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "images").glob("demo-*.png"))
    assert len(pictures) == 4
    assert max(picture.stat().st_size for picture in pictures) <= MOST_BYTES


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/worker.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/pushlane.min.js", "text/javascript; charset=utf-8"),
    ],
)
def test_the_page_is_served(demo: Running, path: str, kind: str) -> None:
    answer = demo.ask(path)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert answer.body
    policy = answer.headers["content-security-policy"]
    there = str(demo.state()["url"])
    assert f"connect-src 'self' {there} ws{there[4:]};" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("path", ["/nothing", "/..%2fpackage.json", "/../package.json", "/a/b"])
def test_nothing_else_is(demo: Running, path: str) -> None:
    assert demo.ask(path).status == 404


def test_the_page_can_kill_the_server(demo: Running) -> None:
    before = demo.state()
    answer = demo.ask("/control/restart/server", "POST", origin=f"http://127.0.0.1:{demo.port}")
    assert answer.status == 200
    after = json.loads(answer.body)
    [server] = before["nodes"]
    assert after == before | {"nodes": [server | {"starts": server["starts"] + 1}]}
    assert demo.ask("/control/restart/server").status == 405
    assert demo.ask("/control/restart/another", "POST").status == 404


@pytest.mark.parametrize(
    "headers", [{"origin": "https://example.org"}, {"host": "example.org"}, {"origin": "null"}]
)
def test_strangers_get_nothing(demo: Running, headers: dict[str, str]) -> None:
    before = demo.state()
    assert demo.ask("/control/restart/server", "POST", **headers).status == 403
    assert demo.ask("/", **headers).status == 403
    assert demo.state() == before


def test_ctrl_c_ends_everything_and_leaves_nothing() -> None:
    with running() as found:
        folder = Path(found.told.rpartition("its data: ")[2].strip())
        gateway = urlsplit(str(found.state()["url"])).port
        assert folder.is_dir()
        assert gateway is not None
        assert found.stop(signal.SIGINT) == 0
    assert not folder.exists()
    assert not answers("127.0.0.1", gateway)


def test_a_folder_that_is_named_is_kept(tmp_path: Path) -> None:
    with running("--data", str(tmp_path / "kept")) as found:
        assert found.stop(signal.SIGTERM) == 0
    assert (tmp_path / "kept" / "data").is_dir()


@pytest.mark.parametrize("which", ["page", "server"])
def test_a_port_that_is_taken_is_named(demo: Running, which: str) -> None:
    taken = str(demo.port)
    ports = {
        "page": ["--port", taken, "--gateway-port", str(free_port())],
        "server": ["--port", "0", "--gateway-port", taken],
    }
    with start(*ports[which]) as process:
        said, complaint = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, said) == (1, "")
    assert complaint.startswith(f"something listens on 127.0.0.1:{taken}: stop it, or name another")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--help"], 0, "usage: make demo"),
        (["--port", "70000"], 2, "70000 is not a port"),
        (["--port", "x"], 2, "invalid _port value: 'x'"),
        (["--nodes", "0"], 2, "0: from 1 to 5 servers"),
        (["--nodes", "6"], 2, "6: from 1 to 5 servers"),
    ],
)
def test_options(
    options: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(options)
    assert end.value.code == code
    assert text in "".join(capsys.readouterr())
