"""`make demo`: a server and a page that shows what it does, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import open_listener
from pushlane_gateway.listener.socket import Socket
from tools.demo.gateway import HOST, Gateway
from tools.demo.site import ORIGINS, find_files, make_site
from tools.services.ports import answers, free_port
from tools.services.process import CannotStart

JAVASCRIPT = Path(__file__).parents[2] / "sdk_js"
PORT = 8430
LOG = "server.log"


def main(args: Sequence[str]) -> None:
    options = _parser().parse_args(args)
    try:
        with _folder(options.data) as folder:
            trio.run(_serve, options.port, options.gateway_port, folder)
    except* CannotStart as faults:
        sys.exit("\n".join(str(fault) for fault in _each(faults)))


async def _serve(port: int, gateway_port: int | None, folder: Path) -> None:
    page, bundle = JAVASCRIPT / "demo" / "dist", JAVASCRIPT / "dist" / "pushlane.min.js"
    files = find_files(page, bundle)
    gateway_port = gateway_port or (port + 1 if port else free_port())
    for wanted in (port, gateway_port):
        if wanted and answers(HOST, wanted):
            raise _taken(wanted)
    gateway = Gateway(gateway_port, folder / "data", folder / LOG)
    service = Service(make_site(gateway, files), _no_session, ORIGINS.allows)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            open_listener([f"{HOST}:{port}"], service) as listener,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(gateway.run)
            print(f"ready on http://{listener.addresses[0]}")
            print(f"Ctrl-C ends it. Its server: {gateway.url}, its data: {folder}", flush=True)
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
        "--data", type=Path, help="a folder to keep the messages in; unless given, they are "
        "gone when the demo ends"
    )  # fmt: skip
    return parser


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**16 - 1:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
