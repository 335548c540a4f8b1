"""`python -m tests.crash`: kill and stop a server under load, and say what came of it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.campaign import READY_MS, Campaign, Figures, Plan
from tests.crash.judge import Seen, Verdict, judge
from tests.crash.plants import PLANTS

ROUNDS, STOPS = 100, 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="kills")
    parser.add_argument("--stops", type=int, default=STOPS, help="stops past a lease")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=PLANTS, default="", help="with a bug, to be found")
    args = parser.parse_args()
    plan = Plan(args.rounds, args.stops, args.seed, args.plant)
    print(f"seed {plan.seed}: {plan.kills} kills, {plan.stops} stops")
    folder = Path(tempfile.mkdtemp(prefix="pushlane-crash-"))
    try:
        campaign = Campaign(plan, folder, progress)
        campaign.run()
        verdict = judge(campaign.histories)
    except BaseException:
        print(f"histories and logs are in {folder}")
        raise
    show(campaign.figures, verdict)
    if not verdict.report.ok:
        print(f"histories and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def progress(text: str) -> None:
    end, start = ("\r", "\x1b[K") if sys.stdout.isatty() else ("\n", "")
    print(start + text, end=end, flush=True)


def show(figures: Figures, verdict: Verdict) -> None:
    ready = sorted(figures.ready_ms)
    stops = ", ".join(f"{count} × {what}" for what, count in sorted(figures.stops.items()))
    print(f"{figures.kills} kills and {figures.early_kills} more before it was ready; {stops}")
    if ready:
        middle, longest = ready[len(ready) // 2], ready[-1]
        print(f"ready again after {middle} ms (median), {longest} ms at most, bar {READY_MS} ms")
    if verdict.seen.outages_ms:
        print(f"a producer was answered again after {max(verdict.seen.outages_ms)} ms at most")
    print(said_of(verdict.seen))
    print(f"notes: {verdict.report.notes}; {figures.seconds:.0f} s")
    print(verdict.report)


def said_of(seen: Seen) -> str:
    verdicts = ", ".join(f"{count} {what}" for what, count in seen.verdicts.items())
    return (
        f"{seen.messages} messages, {seen.confirmed} publishes confirmed, {seen.unknown} unknown, "
        f"{seen.duplicates} duplicates; {seen.deliveries} deliveries, {seen.again} of them again, "
        f"{seen.dead} dead letters; {verdicts}"
    )


if __name__ == "__main__":
    sys.exit(main())
