"""What docs/containers.md offers: its form, and a server as the first process of its namespace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

from pushlane_gateway.configuration.load import load
from tests.docs.page import read_blocks
from tests.gateway.process import COMMAND, environment
from tests.repo import ROOT
from tools.services.ports import free_port

PAGE = (ROOT / "docs" / "containers.md").read_text()
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
INSTRUCTIONS = {
    "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "STOPSIGNAL", "USER", "VOLUME",
    "WORKDIR",
}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile without comments, its continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", "")
    rows = [line.split(maxsplit=1) for line in text.splitlines() if line]
    return [(name, rest) for name, rest in rows]


def settings() -> dict[str, str]:
    [text] = [rest for name, rest in instructions() if name == "ENV"]
    return dict(pair.split("=") for pair in text.split())


def test_the_dockerfile_has_a_good_form() -> None:
    found = instructions()
    assert {name for name, _ in found} == INSTRUCTIONS
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources)
        if name == "RUN":
            subprocess.run(["bash", "-n", "-c", rest], check=True, timeout=60)
    command = [json.loads(rest) for name, rest in found if name in ("ENTRYPOINT", "CMD")]
    assert command == [["pushlane"], ["serve"]]


def test_its_settings_are_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "pushlane.toml"
    path.write_text("")
    loaded = load(str(path), environment=settings())
    assert loaded.auth.required


def test_the_manifest_is_yaml_and_names_what_is_there() -> None:
    prettier = ROOT / "sdk_js" / "node_modules" / ".bin" / "prettier"
    subprocess.run(
        [prettier, "--check", "--no-config", "--no-editorconfig", MANIFEST],
        check=True,
        timeout=60,
        capture_output=True,
    )
    text = MANIFEST.read_text()
    assert set(re.findall(r"ath: (/\S+)", text)) == {"/healthz", "/readyz", "/data"}
    assert set(re.findall(r"[pP]ort: (\d+)", text)) == {"8420"}
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", text)
    assert grace is not None
    assert int(grace[1]) > load(environment={}).session.drain_ms / 1000


def test_shell_blocks_have_a_good_form() -> None:
    for block in read_blocks(PAGE):
        subprocess.run(["bash", "-n", "-c", block.text], check=True, timeout=60)


def test_a_server_that_is_process_1_drains_on_sigterm(tmp_path: Path) -> None:
    here = {
        **settings(),
        "PUSHLANE_LISTEN": f"127.0.0.1:{free_port()}",
        "PUSHLANE_DATA": str(tmp_path / "store"),
        "PUSHLANE_SERVICE_HOST": "10.0.0.1",  # as Kubernetes does
        "PUSHLANE_PORT": "tcp://10.0.0.1:8420",
    }
    own = namespace()
    with subprocess.Popen(
        [*own, *COMMAND], env={**environment(), **here}, stdout=subprocess.PIPE, text=True
    ) as outside:
        assert outside.stdout is not None
        assert outside.stdout.readline().startswith("ready on ")
        inside = outside.pid
        if own:
            assert (tmp_path / "store" / "lock").read_text().strip() == "1"
            inside = int(Path(f"/proc/{inside}/task/{inside}/children").read_text())
        os.kill(inside, signal.SIGTERM)
        assert outside.wait(60) == 0


def namespace() -> list[str]:
    """Runs a command as process 1, where the machine allows that."""
    own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    return [] if subprocess.run([*own, "true"], capture_output=True).returncode else own
