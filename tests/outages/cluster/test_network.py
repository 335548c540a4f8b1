"""A network of one's own. Each test runs in a process of its own, which leaves the world."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.crash.child import Child
from tests.outages.cluster.network import NAMES, Cut, Host, Network, cuts, leave_the_world
from tests.outages.door import Door
from tests.outages.stage import until

PORT = 5000
SILENT_S, PATIENCE_S = 0.3, 20.0
POSSIBLE = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True)

pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and (POSSIBLE.returncode != 0 or shutil.which("ip") is None),
    reason="it takes root and iproute2",
)


def elsewhere(test: Callable[[], None]) -> None:
    """Run it in another process."""
    process = get_context("spawn").Process(target=_run, args=(test,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _run(test: Callable[[], None]) -> None:
    try:
        leave_the_world()
        test()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


class Line:
    """A connection from one host to another."""

    def __init__(self, stack: ExitStack, client: Host, server: Host) -> None:
        with server.inside():
            listener = stack.enter_context(socket.create_server((server.address, PORT)))
        with client.inside():
            address = server.address, PORT
            self.client = stack.enter_context(socket.create_connection(address, PATIENCE_S))
        self.server = stack.enter_context(listener.accept()[0])

    def carries(self) -> bool:
        return _hears(self.client, self.server)

    def carries_back(self) -> bool:
        return _hears(self.server, self.client)


def _hears(source: socket.socket, target: socket.socket, seconds: float = SILENT_S) -> bool:
    target.settimeout(seconds)
    source.sendall(b"x")
    try:
        return bool(target.recv(10))
    except TimeoutError:
        return False


def _cut_one_way() -> None:
    network = Network()
    one, two = network.host("one"), network.host("two")
    with ExitStack() as stack:
        line = Line(stack, one, two)
        assert line.carries()
        assert line.carries_back()
        cut = Cut([one], [two])
        cut.hold()
        assert not line.carries()
        assert line.carries_back(), "only one way"
        assert Line(stack, one, network.host("three")).carries(), "only this way"
        cut.let_go()
        assert _hears(line.client, line.server, PATIENCE_S)


def _cut_both_ways() -> None:
    network = Network()
    one, two = network.host("one"), network.host("two")
    with ExitStack() as stack:
        line = Line(stack, one, two)
        for cut in cuts([one], [two]):
            cut.hold()
        assert not line.carries()
        assert not line.carries_back()


def _door_on_a_host() -> None:
    network = Network()
    clients, node, other = (network.host(name) for name in ("clients", "node", "other"))
    door = Door(place=clients)
    with ExitStack() as stack:
        with node.inside():
            listener = stack.enter_context(socket.create_server((node.address, PORT)))
        door.lead_to(PORT, node.address)
        client = stack.enter_context(socket.create_connection((clients.address, door.port)))
        server, (source, _) = listener.accept()
        stack.enter_context(server)
        assert source == clients.address, "it comes from where the door is"
        Cut([other], [node]).hold()
        assert _hears(client, server, PATIENCE_S)
        Cut([clients], [node]).hold()
        assert not _hears(client, server)
    door.close()


def _command_on_a_host() -> None:
    host = Network().host("one")
    shown = subprocess.run([*host.within, "ip", "addr"], capture_output=True, text=True, check=True)
    assert host.address in shown.stdout


def test_a_cut_is_silent_and_one_way() -> None:
    elsewhere(_cut_one_way)


def test_a_cut_of_both_ways() -> None:
    elsewhere(_cut_both_ways)


def test_a_door_is_on_its_host() -> None:
    elsewhere(_door_on_a_host)


def test_a_command_runs_on_its_host() -> None:
    elsewhere(_command_on_a_host)


def _process_on_a_host(folder: Path) -> None:
    leave_the_world()
    host = Network().host("one")
    child = Child([*host.within, "sleep", "1000"], folder / "log", folder)
    (folder / "part").write_text(f"{child.pid}")
    (folder / "part").rename(folder / "pid")
    time.sleep(1000)


def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    before = sorted(name for _, name in socket.if_nameindex())
    run = get_context("spawn").Process(target=_process_on_a_host, args=(tmp_path,))
    run.start()
    until((tmp_path / "pid").exists, "no process on a host")
    process = Path("/proc", (tmp_path / "pid").read_text())
    assert process.exists()
    run.kill()
    until(lambda: not process.exists(), "it lives on")
    assert sorted(name for _, name in socket.if_nameindex()) == before
    assert not any(NAMES.glob("one"))
