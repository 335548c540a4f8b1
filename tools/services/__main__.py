"""`make services`: Cassandra and Redis for a developer, until Ctrl-C. Their data is kept."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tools.services.cassandra import RING_OF_THREE, Ring, running_cassandra
from tools.services.cassandra_files import Options
from tools.services.folder import locked
from tools.services.ports import answers
from tools.services.process import CannotStart
from tools.services.redis import HOST, Redis, running_redis

POLL_SECONDS = 1.0


class Stopped(Exception):
    """SIGINT or SIGTERM."""


def main(args: Sequence[str]) -> None:
    options = _parser().parse_args(args)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / "lock"):
            _serve(folder, options.ring, options.cassandra_port, options.redis_port)
    except Stopped:
        pass
    except CannotStart as fault:
        sys.exit(str(fault))


def _serve(folder: Path, size: int, cassandra_port: int, redis_port: int) -> None:
    for port in (cassandra_port, redis_port):
        if answers(HOST, port):
            raise CannotStart(f"something listens on {HOST}:{port}: stop it, or name another port")
    cassandra = running_cassandra(
        size,
        # A single node has nobody else who would remember: it answers after its fsync.
        Options(sync="batch" if size == 1 else "periodic"),
        folder=folder / f"ring-of-{size}",
        port=cassandra_port,
        storage_port=cassandra_port + 1,
    )
    with running_redis(folder=folder, port=redis_port) as redis, cassandra as ring:
        # Whoever reads this may go on with it.
        print(f"ready: {ring.url('pushlane')} {redis.url}", flush=True)
        _wait(ring, redis)


def _wait(ring: Ring, redis: Redis) -> None:
    """Until a signal comes, or a process ends that should not."""
    while True:
        time.sleep(POLL_SECONDS)
        for process in (redis.process, *(node.process for node in ring.nodes)):
            if process.died:
                raise process.fault("ended by itself")


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # once is enough, and stopping takes a while
    raise Stopped


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make services", description=__doc__)
    parser.add_argument("--cassandra-port", type=int, default=9042)
    parser.add_argument("--redis-port", type=int, default=6379)
    parser.add_argument("--ring", type=int, choices=(1, RING_OF_THREE), default=1)
    parser.add_argument("--folder", type=Path, default=Path("pushlane-services"))
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
