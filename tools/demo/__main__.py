"""`make demo`: a server and a page that shows what it does, until Ctrl-C.

With `--nodes` it is a cluster on a Cassandra and a Redis. A server that is killed stays away for a
while, so that one sees the others take over.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import open_listener
from pushlane_gateway.listener.socket import Socket
from tools.demo.balancer import Balancer
from tools.demo.gateway import HOST, Gateway
from tools.demo.site import ORIGINS, find_files, make_site
from tools.services.ports import answers, free_ports
from tools.services.process import CannotStart

JAVASCRIPT = Path(__file__).parents[2] / "sdk_js"
BUNDLE = "pushlane.min.js"
PORT = 8430
LOG = "server.log"
MOST_NODES = 5
AWAY_S = 6.0
"""How long a killed server of a cluster stays away; the others take over in half of that."""


def main(args: Sequence[str]) -> None:
    options = _parser().parse_args(args)
    try:
        with _folder(options.data) as folder, ExitStack() as services:
            files = find_files(JAVASCRIPT / "demo" / "dist", JAVASCRIPT / "dist" / BUNDLE)
            ports = _ports(options)
            servers = _servers(options, ports[-options.nodes :], folder, services)
            trio.run(_serve, ports, servers, files, folder)
    except* CannotStart as faults:
        sys.exit("\n".join(str(fault) for fault in _each(faults)))


def _ports(options: argparse.Namespace) -> list[int]:
    """Of the page; of what clients connect to; of servers behind that, if it is not the server."""
    free, *behind = free_ports(1 + options.nodes)
    first = options.gateway_port or (options.port + 1 if options.port else free)
    ports = [options.port, first, *(behind if options.nodes > 1 else [])]
    for wanted in ports:
        if wanted and answers(HOST, wanted):
            raise _taken(wanted)
    return ports


def _servers(
    options: argparse.Namespace, ports: Sequence[int], folder: Path, services: ExitStack
) -> list[Gateway]:
    if options.nodes == 1:
        return [Gateway(ports[0], ["--data", str(folder / "data")], folder / LOG)]
    from tools.services.backing import running_backing  # `make demo` has no driver for these

    backing = services.enter_context(
        running_backing(folder, store=options.store, leases=options.leases)
    )
    names = [f"node-{number}" for number in range(1, options.nodes + 1)]
    return [
        Gateway(port, backing.options(name), folder / f"{name}.log", name=name, away_s=AWAY_S)
        for name, port in zip(names, ports, strict=True)
    ]


async def _serve(
    ports: Sequence[int], servers: Sequence[Gateway], files: dict[str, Path], folder: Path
) -> None:
    balancer = Balancer(servers, ports[1]) if len(servers) > 1 else None
    url = servers[0].url if balancer is None else balancer.url
    service = Service(make_site(url, servers, files), _no_session, ORIGINS.allows)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            open_listener([f"{HOST}:{ports[0]}"], service) as listener,
            trio.open_nursery() as nursery,
        ):
            for server in servers:  # one after the other: the first one makes the tables
                await nursery.start(server.run)
            if balancer is not None:
                await nursery.start(balancer.run)
            print(f"ready on http://{listener.addresses[0]}")
            what = "server" if balancer is None else f"{len(servers)} servers"
            print(f"Ctrl-C ends it. Its {what}: {url}, its data: {folder}", flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def _no_session(socket: Socket) -> None:
    """There is nothing to subscribe to here: a session is the server's."""
    socket.close(1008, "the server has another port")


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    """Where the data is; a temporary one unless somebody wants to keep it."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="pushlane-demo-") as name:
        yield Path(name)


def _taken(port: int) -> CannotStart:
    return CannotStart(
        f"something listens on {HOST}:{port}: stop it, or name another port (make demo PORT=…; "
        "the page is there, its server on the one behind it)"
    )


def _each(group: BaseExceptionGroup[CannotStart]) -> Iterator[CannotStart]:
    for fault in group.exceptions:
        if isinstance(fault, BaseExceptionGroup):
            yield from _each(fault)
        else:
            yield fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--port", type=_port, default=PORT, help=f"of the page ({PORT}); 0 takes a free one"
    )
    parser.add_argument(
        "--gateway-port", type=_port, help="of the server; unless given, the one after the page's"
    )
    parser.add_argument(
        "--nodes", type=_nodes, default=1, help=f"how many servers, at most {MOST_NODES} (1)"
    )
    parser.add_argument("--store", help="of a cluster: a Cassandra that runs; else one is started")
    parser.add_argument("--leases", help="of a cluster: a Redis that runs; else one is started")
    parser.add_argument(
        "--data", type=Path, help="a folder to keep the messages in; unless given, they are "
        "gone when the demo ends"
    )  # fmt: skip
    return parser


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**16 - 1:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number


def _nodes(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text}: from 1 to {MOST_NODES} servers")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
