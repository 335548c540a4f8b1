"""`make cluster`: several servers on one Cassandra and Redis, on this machine, until Ctrl-C.

To look at a cluster and to develop on it. A server that ends stays away, and the others go on: so
kill one. Unless a folder is named, all data is gone in the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from tools.services.backing import Backing, running_backing
from tools.services.cassandra import RING_OF_THREE
from tools.services.folder import locked, scratch_folder
from tools.services.ports import answers, free_ports
from tools.services.process import CannotStart, Process

HOST = "127.0.0.1"
PORT = 8420
NODES = 3
MOST = 16
START_SECONDS = 120
STOP_SECONDS = 60
"""A server drains first."""
POLL_SECONDS = 0.5
COMMAND = [sys.executable, "-c", "from pushlane.cli import main; main()", "serve"]


class Stopped(Exception):
    """SIGINT or SIGTERM."""


class Node:
    """A server."""

    def __init__(self, name: str, port: int, backing: Backing, folder: Path) -> None:
        self.name = name
        self.url = f"http://{HOST}:{port}"
        command = [*COMMAND, "--listen", f"{HOST}:{port}", *backing.options(name)]
        self.process = Process(name, command, folder / f"{name}.log")
        self.is_up = False

    def start(self) -> None:
        self.process.log.unlink(missing_ok=True)
        self.process.start()

    def wait(self) -> None:
        self.process.until(self._is_ready, START_SECONDS)
        self.is_up = True

    def _is_ready(self) -> bool:
        return f"ready on {self.url}" in self.process.log.read_text(errors="replace")


def main(args: Sequence[str]) -> None:
    options = _parser().parse_args(args)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    for name in [name for name in os.environ if name.startswith("PUSHLANE_")]:
        del os.environ[name]  # they are for somebody else's server
    try:
        with _folder(options.folder) as folder, ExitStack() as services:
            ports = _ports(options.port, options.nodes)
            backing = services.enter_context(
                running_backing(
                    folder, ring=options.ring, store=options.store, leases=options.leases
                )
            )
            nodes = [
                Node(f"node-{number}", port, backing, folder)
                for number, port in enumerate(ports, 1)
            ]
            with suppress(Stopped):  # not further out: no log is needed of what went well
                _run(nodes)
    except Stopped:
        pass
    except CannotStart as fault:
        sys.exit(str(fault))


def _run(nodes: list[Node]) -> None:
    try:
        nodes[0].start()
        nodes[0].wait()  # it makes the tables
        for node in nodes[1:]:
            node.start()
        for node in nodes:
            if not node.is_up:
                node.wait()
            print(f"{node.name}: ready on {node.url}, pid {node.process.pid}", flush=True)
        print(f"Ctrl-C ends it all. Look: pushlane cluster status --url {nodes[0].url}", flush=True)
        _wait(nodes)
    finally:
        _end(nodes)


def _wait(nodes: list[Node]) -> None:
    """Until a signal comes, or none is left."""
    while any(node.is_up for node in nodes):
        time.sleep(POLL_SECONDS)
        for node in nodes:
            if node.is_up and node.process.died:
                node.is_up = False
                print(f"{node.name} has ended; its log: {node.process.log}", flush=True)
    raise CannotStart("all servers have ended")


def _end(nodes: list[Node]) -> None:
    """All at once: they drain side by side."""
    for node in nodes:
        if node.process.running:
            os.kill(node.process.pid, signal.SIGCONT)
            os.kill(node.process.pid, signal.SIGTERM)
    for node in nodes:
        node.process.terminate(STOP_SECONDS)


def _ports(first: int, count: int) -> list[int]:
    if not first:
        return free_ports(count)
    for port in range(first, first + count):
        if answers(HOST, port):
            raise CannotStart(
                f"something listens on {HOST}:{port}: stop it, or name another first port "
                "(make cluster PORT=…)"
            )
    return list(range(first, first + count))


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with scratch_folder() as folder:
            yield folder
        return
    folder = wanted.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        yield folder


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # once is enough, and stopping takes a while
    raise Stopped


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--nodes", type=_count, default=NODES, help=f"how many servers ({NODES})")
    parser.add_argument("--ring", type=int, choices=(1, RING_OF_THREE), default=1)
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"of the first server ({PORT}); 0 takes free ones"
    )
    parser.add_argument("--folder", type=Path, help="to keep the data in")
    parser.add_argument("--store", help="a Cassandra that runs; unless given, one is started")
    parser.add_argument("--leases", help="a Redis that runs; unless given, one is started")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"{text}: from 1 to {MOST} servers")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
