"""`python -m tests.crash.worker ROLE …`: a process with clients, told by its stdin what to do.

`calm`: producers stop and end; consumers are well from now on. `end`: consumers end. When stdin is
closed the test is gone, and so is this process. At its end it writes its history.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pushlane
from tests.crash.consuming import Consumption
from tests.crash.producing import Production
from tests.crash.recorder import Recorder

ROLES = ("producers", "consumers")
NICE = 5
"""The server comes first: what is measured is how soon it is there again."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.worker")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--pace", type=float, default=1.0, help="how much more slowly to publish")
    args = parser.parse_args()
    os.nice(NICE)
    recorder = Recorder(args.number)
    rng = Random(f"{args.seed} {args.number}")
    asyncio.run(work(args.role, args.url, recorder, rng, f"{args.number}", args.pace))
    recorder.write(args.history)
    print("done", flush=True)


async def work(
    role: str, url: str, recorder: Recorder, rng: Random, name: str, pace: float
) -> None:
    def connect(settings: pushlane.Settings) -> pushlane.connect:
        return pushlane.connect(url, settings=settings)

    print("begun", flush=True)
    if role == "producers":
        production = Production(connect, recorder, rng, pace)
        _listen({"calm": production.calm})
        await production.run(name)
    else:
        consumption = Consumption(connect, recorder, rng)
        _listen({"calm": consumption.calm, "end": consumption.end})
        await consumption.run()


def _listen(commands: dict[str, Callable[[], None]]) -> None:
    def heard() -> None:
        said = os.read(sys.stdin.fileno(), 4096).decode()
        if not said:
            os._exit(1)
        for line in said.splitlines():
            commands[line]()

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), heard)


if __name__ == "__main__":
    main()
