"""`python -m tests.outages.cluster.wrong_clock HOURS serve …`: a server whose machine's clock is
wrong by so many hours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def ahead(hours: int, real: Callable[[], float] = time.time) -> Callable[[], float]:
    return lambda: real() + 3_600 * hours


if __name__ == "__main__":
    time.time = ahead(int(sys.argv.pop(1)))
    from pushlane.cli import main  # everything is imported with that clock

    main()
