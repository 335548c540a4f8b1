"""A network of one's own: hosts in namespaces, and a router between them that can lose packets.

`leave_the_world` gives this process a network and mounts that nobody else has. All that is made
from then on ends with the last process in there, whatever that one dies of: nothing is left behind,
and nothing gets out. It takes root on Linux, and iproute2.

Each host has an address and a line to the router, which is this process's own side. What a host
sends to another passes through the router, so a rule there loses it: silently, and one way only if
that is what is wanted.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path

from tools.services.process import CannotStart, need

NAMES = Path("/run/netns")
"""Where iproute2 keeps the names of namespaces."""
IPV4 = Path("/proc/sys/net/ipv4")
ROUTER = "10.77.0.1"
FIRST = 11
"""The last number of the first host's address."""
_NEWNS, _NEWNET = 0x20000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def leave_the_world() -> None:
    """To be called before the process has threads."""
    need("ip", "iproute2")
    if os.geteuid():
        raise CannotStart("namespaces of the network can be made by root only")
    _checked(_libc.unshare(_NEWNET | _NEWNS))
    _run("mount", "--make-rprivate", "/")
    NAMES.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "names", str(NAMES))


class Host:
    """Processes and doors are put on it."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self._namespace = NAMES / name

    @property
    def within(self) -> list[str]:
        """What to put before a command that is to run here."""
        return ["nsenter", f"--net={self._namespace}"]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The sockets that this thread makes in the block are made here."""
        with _opened(Path("/proc/thread-self/ns/net")) as before, _opened(self._namespace) as here:
            _checked(_libc.setns(here, _NEWNET))
            try:
                yield
            finally:
                _checked(_libc.setns(before, _NEWNET))


class Network:
    """This process is the router."""

    def __init__(self) -> None:
        self._numbers = count(FIRST)
        for setting in ("conf/all/rp_filter", "conf/default/rp_filter"):
            (IPV4 / setting).write_text("0")  # else a rule for one way would stop both
        (IPV4 / "ip_forward").write_text("1")
        _ip("link set lo up", f"addr add {ROUTER}/32 dev lo")

    def host(self, name: str) -> Host:
        """Another one, which reaches all others."""
        number = next(self._numbers)
        host, line = Host(name, ROUTER.rpartition(".")[0] + f".{number}"), f"line-{number}"
        _ip(
            f"netns add {name}",
            f"link add {line} type veth peer name eth0 netns {name}",
            f"link set {line} up",
            f"route add {host.address} dev {line} src {ROUTER}",
        )
        _ip(
            "link set lo up",
            "link set eth0 up",
            f"addr add {host.address}/32 dev eth0",
            f"route add {ROUTER} dev eth0 src {host.address}",
            f"route add default via {ROUTER} src {host.address}",
            namespace=name,
        )
        return host


class Cut:
    """Loses what some hosts send to others, while it is held."""

    def __init__(self, sources: Sequence[Host], targets: Sequence[Host]) -> None:
        self._rules = [
            f"from {source.address} to {target.address} blackhole"
            for source, target in product(sources, targets)
            if source is not target
        ]

    def hold(self) -> None:
        _ip(*(f"rule add {rule}" for rule in self._rules))

    def let_go(self) -> None:
        _ip(*(f"rule del {rule}" for rule in self._rules))


def cuts(some: Sequence[Host], others: Sequence[Host]) -> list[Cut]:
    """Both ways."""
    return [Cut(some, others), Cut(others, some)]


def _ip(*commands: str, namespace: str = "") -> None:
    where = ["-n", namespace] if namespace else []
    _run("ip", *where, "-batch", "-", said="".join(f"{command}\n" for command in commands))


def _run(*command: str, said: str = "") -> None:
    done = subprocess.run(command, input=said, capture_output=True, text=True)
    if done.returncode:
        raise CannotStart(f"{' '.join(command)}: {done.stderr.strip()}\n{said}")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
