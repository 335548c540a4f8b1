"""Carrying a job out for a command: a session, the job, its report, and how the command ends."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Group, Parameter

from pushlane_spark import load
from pushlane_spark.errors import JobError, PublishFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
LOGGING = Path(__file__).with_name("log4j2.properties")
"""Spark's own is chatty: it would stand between the lines of a report."""
MOST_LINES = 20
"""Of what Spark says when it failed."""
_GROUP = Group("Spark", sort_key=90)
_MEMORY = re.compile(r"[1-9][0-9]{0,5}[kmgt]", re.IGNORECASE)


@Parameter(name="*")
@dataclass(frozen=True)
class SparkOptions:
    """How Spark is run. Under spark-submit it is the one to say all this."""

    master: Annotated[
        str, Parameter(group=_GROUP, help="Where Spark runs: local[2] is here, on two cores.")
    ] = "local[*]"
    memory: Annotated[
        str,
        Parameter(
            group=_GROUP, help="Memory of the driver, which runs everything locally: 512m, 4g."
        ),
    ] = "2g"
    conf: Annotated[
        list[str],
        Parameter(
            group=_GROUP,
            negative="",
            show_default=False,
            help="NAME=VALUE, a setting of Spark; may be given several times.",
        ),
    ] = field(default_factory=list)

    def settings(self) -> dict[str, str]:
        """Spark's settings; ends the command when they are none."""
        if not _MEMORY.fullmatch(self.memory):
            end(REFUSED, f"--memory is {self.memory!r}: give a number and a unit, such as 4g")
        own = {
            "spark.driver.memory": self.memory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOGGING}",
        }
        for setting in self.conf:
            name, equals, value = setting.partition("=")
            if not equals or not name.startswith("spark."):
                end(REFUSED, f"--conf is {setting!r}: give spark.NAME=VALUE")
            own[name] = value
        return own


LOCAL = SparkOptions()


def run_job(name: str, spark: SparkOptions, job: Callable[[SparkSession], Any]) -> Any:
    """What the job reports. Faults end the command with a line that says what to do."""
    settings = spark.settings()
    try:
        session = load("session:open_session")(
            f"pushlane {name}", master=spark.master, settings=settings
        )
        return job(session)
    except PublishFailed as error:
        end(FAILED, f"{error}; run it again: what is stored is not stored twice")
    except (JobError, ValueError) as error:
        end(REFUSED, str(error))
    except KeyboardInterrupt:
        end(INTERRUPTED, "stopped")
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        end(FAILED, f"Spark failed: {_shortened(str(error))}")


def _shortened(text: str) -> str:
    """Without most of Java's stack."""
    lines = text.strip().splitlines()
    return "\n".join(lines[:MOST_LINES] + ["…"] * (len(lines) > MOST_LINES))


def finish(report: Any, *, json: bool) -> None:
    """Print a report; a job that found something wrong ends with 1."""
    from rich.console import Console

    from pushlane_spark.printing import print_report, to_json

    if json:
        print(to_json(report))
    else:
        print_report(report, Console(highlight=False))
    if not getattr(report, "ok", True):
        sys.exit(FAILED)


def pairs(texts: list[str], option: str) -> Mapping[str, str]:
    """NAME=VALUE, several times."""
    found = [text.partition("=") for text in texts]
    if wrong := [text for text, one in zip(texts, found, strict=True) if not one[1]]:
        end(REFUSED, f"{option} is {wrong[0]!r}: give NAME=VALUE")
    return {name: value for name, _, value in found}


def end(status: int, text: str) -> NoReturn:
    print(f"pushlane jobs: {text}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def steps_shown() -> Iterator[Callable[[str], None]]:
    """On a terminal the last step of a job, and how many groups are done; else nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    counts: Counter[str] = Counter()
    with Console(stderr=True).status("looking") as status:

        def at(step: str) -> None:
            counts[step] += 1
            status.update(f"{step}, {counts['cleaned up']} groups archived")

        yield at


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
