"""`python -m tests.outages.planted PLANT serve …`: the real server with a bug in it."""

from __future__ import annotations

import sys

from pushlane.cli import main
from tests.outages.plants import PLANTS

if __name__ == "__main__":
    PLANTS[sys.argv.pop(1)].sow()
    main()
