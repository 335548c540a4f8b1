"""`pushlane jobs`: retention, usage, metrics, audit and replay, on Spark.

Exit status: 0 done; 1 the job failed, or found something wrong; 2 it can't be done like this (a bad
option, no Java, no jars, no such store), and nothing was touched; 130 interrupted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from pushlane.commands.output import FLAG, Json, print_json
from pushlane.commands.server import HERE, Server
from pushlane.wire.errors import PushlaneError
from pushlane_spark import load
from pushlane_spark.errors import JobError
from pushlane_spark.moments import read_moment
from pushlane_spark.running import (
    LOCAL,
    REFUSED,
    SparkOptions,
    end,
    finish,
    pairs,
    progress_bar,
    run_job,
    steps_shown,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

jobs = App(
    name="jobs",
    help="Spark jobs over the store: retention, usage, metrics, audit, replay.\n\n"
    "They run here, in a Spark of their own, or on a cluster: `spark-submit … "
    "$(pushlane jobs path) COMMAND …`. They need Java 17 and pip install 'pushlane-server[spark]'.",
)

Store = Annotated[str, Parameter(help="sqlite:DIR, or cassandra://HOST[,HOST…][:PORT]/KEYSPACE.")]
Tenant = Annotated[str | None, Parameter(help="Of this tenant only.")]
Flag = Annotated[bool, FLAG]
Many = Annotated[list[str] | None, Parameter(negative="")]


@jobs.command
def retention(
    *,
    store: Store,
    archive: str | None = None,
    queue: Many = None,
    tenant: Tenant = None,
    dry_run: Flag = False,
    json: Json = False,
    server: Server = HERE,
    spark: SparkOptions = LOCAL,
) -> None:
    """Archive and drop what is drained or past its retention.

    Safe while servers run; if it was stopped, run it again. For example every night:

    pushlane jobs retention --store sqlite:./pushlane-data --archive /srv/archive

    Exit status: 0 done, 1 failed, 2 refused.

    Parameters
    ----------
    archive
        The folder or URL of the archive, for queues whose `archive` is parquet.
    queue
        This queue only; may be given several times.
    dry_run
        Say what would be done, and change nothing.
    """
    options = {"archive": archive, "queues": queue, "tenant": tenant, "dry_run": dry_run}
    options |= {"url": server.url, "token": _token(server)}
    with steps_shown() as at:
        report = run_job("retention", spark, _job("retaining.job:run", store, options | {"at": at}))
    finish(report, json=json)


@jobs.command
def usage(
    *,
    store: Store,
    rate_card: Path,
    out: str,
    since: str = "yesterday",
    until: str = "today",
    tenant: Tenant = None,
    json: Json = False,
    server: Server = HERE,
    spark: SparkOptions = LOCAL,
) -> None:
    """Price what tenants used, by hour and day, and export it.

    Run again for the same days it changes nothing, or takes in what came late. Every morning:

    pushlane jobs usage --store cassandra://db1/pushlane --rate-card rates.toml --out /srv/usage

    Exit status: 0 done, 1 failed, 2 refused.

    Parameters
    ----------
    rate_card
        The file with the prices.
    out
        The folder that CSV and Parquet are written to.
    since
        From then on: a date, a time, yesterday, 7d (ago). Without a zone it is UTC.
    until
        Up to then, and not including it.
    """
    options = {"rate_card": rate_card, "out": out, "tenant": tenant, **_period(since, until)}
    options |= {"url": server.url, "token": _token(server)}
    finish(run_job("usage", spark, _job("billing.report:run", store, options)), json=json)


@jobs.command
def metrics(
    *,
    store: Store,
    out: str,
    since: str = "7d",
    until: str = "now",
    tenant: Tenant = None,
    archive: str | None = None,
    json: Json = False,
    spark: SparkOptions = LOCAL,
) -> None:
    """Latencies, throughput, failures, lag and hot keys, as a page with plots.

    pushlane jobs metrics --store sqlite:./pushlane-data --since 24h --out ./report

    Exit status: 0 done, 1 failed, 2 refused.

    Parameters
    ----------
    out
        The folder that the page and its plots are written to.
    since
        From then on: a date, a time, yesterday, 7d (ago). Without a zone it is UTC.
    until
        Up to then, and not including it.
    archive
        Look at messages that were archived, too.
    """
    options = {"out": out, "tenant": tenant, "archive": archive, **_period(since, until)}
    finish(run_job("metrics", spark, _job("measuring.report:run", store, options)), json=json)


@jobs.command
def audit(
    *histories: Annotated[str, Parameter(name="HISTORY")],
    json: Json = False,
    spark: SparkOptions = LOCAL,
) -> None:
    """Judge recorded histories: were all promises kept?

    Each violation is named, with the events that show it:

    pushlane jobs audit /srv/history/orders

    Exit status: 0 all promises were kept, 1 some were not, 2 refused.

    Parameters
    ----------
    histories
        Files, or folders with the parts of one history.
    """
    if not histories:
        end(REFUSED, "what should be audited? Give the file or folder of a HISTORY")

    def job(session: SparkSession) -> Any:
        return load("auditing.report:summary")(load("auditing.report:audit")(session, *histories))

    finish(run_job("audit", spark, job), json=json)


@jobs.command
def replay(
    *,
    archive: str | None = None,
    store: Annotated[str | None, Parameter(help="Also what is in this store.")] = None,
    queue: str,
    to: str,
    tenant: str = "default",
    since: str | None = None,
    until: str | None = None,
    key: Many = None,
    header: Many = None,
    state: Many = None,
    rate: float | None = None,
    name: str = "replay",
    bookmark: Path | None = None,
    dry_run: Flag = False,
    json: Json = False,
    server: Server = HERE,
    spark: SparkOptions = LOCAL,
) -> None:
    """Publish archived messages once more, in their order, to a queue.

    What the orders of one customer were on a day, to be looked at before it is done:

    pushlane jobs replay --archive /srv/archive --queue orders --to orders.again --key customer-5
    --since 2026-11-01 --until 2026-11-02 --dry-run

    Exit status: 0 done, 1 stopped half-way or some were refused, 2 refused.

    Parameters
    ----------
    archive
        The folder or URL of the archive.
    queue
        The queue that they were in.
    to
        The queue that they are published to.
    tenant
        Whose queue it was. Whose `to` is, is said by the token.
    since
        Published from then on: a date, a time, yesterday, 7d (ago). Without a zone it is UTC.
    until
        Published before then.
    key
        With this key only; may be given several times, for one of several.
    header
        NAME=VALUE: with this header only; of several all must be there.
    state
        That ended like this: acked, dead, expired, dropped, purged, redriven; else all that ended.
    rate
        Maximum number of messages per second.
    name
        Replays of another name don't count as repeats of each other.
    bookmark
        A file that keeps how far it is: with it, a replay that was stopped goes on.
    dry_run
        Count them, and publish nothing.
    """
    if archive is None and store is None:
        end(REFUSED, "from where? Give --archive, or --store, or both")
    options: dict[str, Any] = {
        "queue": queue, "to": to, "store": store, "tenant": tenant, "keys": key,
        "headers": pairs(header or [], "--header"), "rate": rate, "name": name,
        "bookmark_file": bookmark, "dry_run": dry_run, "url": server.url, "token": _token(server),
        "since": _moment(since), "until": _moment(until),
    }  # fmt: skip
    if state is not None:
        options["states"] = state
    with progress_bar("replaying") as tell:
        job = _job("replaying.report:run", archive, {**options, "progress": tell})
        report = run_job("replay", spark, job)
    finish(report, json=json)


@jobs.command
def jars(*, json: Json = False) -> None:
    """Fetch the jars that Spark reads the stores with, and print where they are.

    They come through Maven, once, into the folder that PUSHLANE_JARS names, else ~/.cache/pushlane:

    spark-submit --jars $(pushlane jobs jars) … $(pushlane jobs path) COMMAND …
    """
    try:
        found = [str(jar) for jar in load("jars:spark_jars")()]
    except JobError as error:
        end(REFUSED, str(error))
    if json:
        print_json(found)
    else:
        print(",".join(found))


@jobs.command
def path() -> None:
    """Print the file that spark-submit runs these commands with.

    spark-submit --master yarn … $(pushlane jobs path) audit hdfs:///history/orders
    """
    print(Path(__file__).parent / "submit" / "pushlane_jobs.py")


def _job(what: str, source: str | None, options: dict[str, Any]) -> Any:
    return lambda session: load(what)(session, source, **options)


def _period(since: str, until: str) -> dict[str, datetime | None]:
    found = {"since": _moment(since), "until": _moment(until)}
    if not found["since"] < found["until"]:  # type: ignore[operator]
        end(REFUSED, f"nothing lies between {since} and {until}")
    return found


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else read_moment(text, datetime.now(UTC))
    except (ValueError, OverflowError) as error:
        end(REFUSED, str(error))


def _token(server: Server) -> str | None:
    try:
        return server.token()
    except PushlaneError as error:
        end(REFUSED, str(error))
