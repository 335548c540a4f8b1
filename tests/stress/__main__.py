"""`python -m tests.stress`: raw clients do everything at random to a server that is killed."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.plants import PLANTS
from tests.stress.campaign import SHOWN, Campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=PLANTS, default="", help="with a bug, to be found")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pushlane-stress-"))
    print(f"seed {args.seed}: {args.minutes:g} minutes")
    began = time.monotonic()
    campaign = Campaign(args.minutes * 60, args.seed, folder, print, args.plant)
    violations = campaign.run()
    print(f"{time.monotonic() - began:.0f} s, {campaign.rounds} rounds, {campaign.kills} kills")
    print(", ".join(f"{count} {what}" for what, count in sorted(campaign.judge.counts.items())))
    for text in violations[:SHOWN]:
        print(f"VIOLATED {text}")
    if violations:
        print(f"{len(violations)} violations; the server's log is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
