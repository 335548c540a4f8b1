"""Do the planted bugs still show at the seeds that they name? And at which seeds would they?

    python -m tests.simulation.seeds             those that don't
    python -m tests.simulation.seeds --find      and a seed for each of them, which may take minutes

A change of the product or of the simulator changes the worlds that seeds stand for. The tests look
for a planted bug all the same, but that takes long: so its seed is found anew.
"""

from __future__ import annotations

import argparse
from itertools import islice
from multiprocessing.pool import Pool

from tests.simulation.mutants import Mutant, planted
from tests.simulation.profile import Profile
from tests.simulation.run import simulate
from tests.simulation.test_mutants import EVERY

BY_NAME = {mutant.name: mutant for mutant in EVERY}
MOST = 3_000
"""Seeds that are tried."""


def shows(name: str, seed: int) -> bool:
    mutant = BY_NAME[name]
    with planted(mutant):
        return bool(mutant.caught_by & set(simulate(seed, store=mutant.store)[0].broken))


def find(pool: Pool, mutant: Mutant) -> int | None:
    """The first seed that shows it, each in a process of its own: some bugs remember something."""
    worlds = (seed for seed in range(MOST) if mutant.among(Profile.draw(seed)))
    while seeds := list(islice(worlds, 16)):
        found = pool.starmap(shows, [(mutant.name, seed) for seed in seeds], 1)
        if any(found):
            return seeds[found.index(True)]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.seeds", description=__doc__)
    parser.add_argument("--find", action="store_true", help="look for seeds that do")
    args = parser.parse_args()
    with Pool(maxtasksperchild=1) as pool:
        known = pool.starmap(shows, [(mutant.name, mutant.seed) for mutant in EVERY], 1)
        missing = [mutant for mutant, found in zip(EVERY, known, strict=True) if not found]
        for mutant in missing:
            found = f": seed={find(pool, mutant)}" if args.find else ""
            print(f"{mutant.name} does not show at seed {mutant.seed}{found}", flush=True)
    print(f"{len(EVERY) - len(missing)} of {len(EVERY)} show at their seeds")


if __name__ == "__main__":
    main()
