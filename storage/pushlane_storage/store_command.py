"""`pushlane store`: backup and restore of the embedded store, the tables of a replicated one,
copies from one to the other.

Exit status: 0 done; 1 it failed half-way, and left nothing that could be used; 2 it can't be done
like this, and nothing was touched; 3 done, but some of what the store holds is damaged.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from pushlane_storage.sqlite.inspection import Progress
    from pushlane_storage.sqlite.manifest import Manifest

FAILED, REFUSED, DAMAGED = 1, 2, 3

store = App(
    name="store",
    help="Back up and restore the embedded store; migrate Cassandra's; copy one into the other.",
)

Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]


@store.command
def backup(data: str, target: Path, /, *, json: Json = False) -> None:
    """Back up a store into a new folder, while it is served or not.

    Everything that was acknowledged before the command began is in the backup. It is read again
    and compared before it counts as one.

    Exit status: 0 done, 1 failed, 2 refused, 3 done but the store has damaged segments.

    Parameters
    ----------
    data
        The store: a folder such as ./pushlane-data, or sqlite:DIR.
    target
        A folder that is not there yet, or is empty.
    json
        Print the manifest as JSON.
    """
    from pushlane_storage.sqlite.backup import backup as run

    manifest = _run(lambda folder, tell: run(folder, target, progress=tell), data)
    _report(manifest, f"backed up to {target}", {"backup": str(target)}, json)


@store.command
def verify(backup: Path, /, *, json: Json = False) -> None:
    """Check a backup against its manifest: every byte, every row, every checksum.

    Exit status: 0 whole, 1 damaged, 2 not a backup, 3 whole, of a store with damaged segments.

    Parameters
    ----------
    backup
        The folder of a backup.
    json
        Print the manifest as JSON.
    """
    from pushlane_storage.sqlite.backup import verify as run

    manifest = _run(lambda folder, tell: run(folder, progress=tell), str(backup))
    _report(manifest, f"{backup} is complete", {"backup": str(backup)}, json)


@store.command
def restore(backup: Path, data: str, /, *, epoch_above: int = 0, json: Json = False) -> None:
    """Restore a backup into a new folder, to be served from there.

    The backup is verified before the folder is touched, and the copy afterwards. The restored
    store goes on with a far greater epoch, so that message ids and fences which were given out
    after the backup are not given out again.

    Exit status: 0 done, 1 failed, 2 refused, 3 done, of a store with damaged segments.

    Parameters
    ----------
    backup
        The folder of a backup.
    data
        The store: a folder that is not there yet or is empty, or sqlite:DIR.
    epoch_above
        An epoch that the lost store certainly had not passed. Needed only if it was opened more
        than once in 30 s since the backup, or a clock is wrong.
    json
        Print the manifest and the epoch as JSON.
    """
    from pushlane_storage.sqlite.restore import restore as run

    done = _run(lambda to, tell: run(backup, to, progress=tell, above=epoch_above), data)
    told = {"data": str(folder_of(data)), "epoch": done.epoch}
    _report(done.manifest, f"restored to {folder_of(data)}, epoch {done.epoch}", told, json)


@store.command
def migrate(url: str, /, *, json: Json = False) -> None:
    """Make the tables of a Cassandra store, or bring them to this version.

    Servers do so by themselves when they start, unless their URL says migrate=off. Several
    processes may migrate at once. Servers of an older version go on while they run; they don't
    start again on newer tables.

    Exit status: 0 done, 1 failed half-way (run it again), 2 refused.

    Parameters
    ----------
    url
        The store: cassandra://HOST[,HOST…][:PORT]/KEYSPACE.
    json
        Print the versions as JSON.
    """
    import trio

    from pushlane_storage.cassandra.schema import migrate as run
    from pushlane_storage.errors import KeyspaceUnusable, OpenError
    from pushlane_storage.url import parse_cassandra

    try:
        address = parse_cassandra(url)
        before, now = trio.run(run, address)
    except OpenError as error:
        _end(FAILED if isinstance(error, KeyspaceUnusable) else REFUSED, str(error))
    if json:
        print(f'{{"keyspace": "{address.keyspace}", "before": {before}, "version": {now}}}')
    elif before == now:
        print(f"keyspace {address.keyspace} has version {now} already")
    else:
        print(f"keyspace {address.keyspace} has version {now} now, it had {before}")


@store.command
def restored(url: str, /, *, taken_at: str, json: Json = False) -> None:
    """Record that a Cassandra keyspace was restored from a snapshot, before servers use it again.

    Every slot goes on with a far greater epoch, so that message ids and fences which were given
    out after the snapshot are not given out again. Repeating it does no harm.

    Exit status: 0 done, 1 failed half-way (run it again), 2 refused.

    Parameters
    ----------
    url
        The store: cassandra://HOST[,HOST…][:PORT]/KEYSPACE.
    taken_at
        When the snapshot was made, such as 2026-11-18T03:00:00+00:00; of several, the oldest one.
    json
        Print the epoch as JSON.
    """
    from datetime import UTC, datetime

    import trio

    from pushlane_storage.cassandra.restored import restored as run
    from pushlane_storage.errors import EpochsExhausted, KeyspaceUnusable, OpenError
    from pushlane_storage.url import parse_cassandra
    from pushlane_storage.wall import wall_clock

    try:
        moment = datetime.fromisoformat(taken_at)
    except ValueError:
        _end(REFUSED, f"{taken_at!r} is not a time; write it like 2026-11-18T03:00:00+00:00")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        address = parse_cassandra(url)
        epoch = trio.run(run, address, int(moment.timestamp() * 1000), wall_clock())
    except (OpenError, EpochsExhausted) as error:
        _end(FAILED if isinstance(error, KeyspaceUnusable) else REFUSED, str(error))
    if json:
        print(f'{{"keyspace": "{address.keyspace}", "epoch": {epoch}}}')
    else:
        print(f"keyspace {address.keyspace} goes on above epoch {epoch}")


@store.command
def copy(source: str, target: str, /, *, dry_run: bool = False, json: Json = False) -> None:
    """Copy a store into an empty one, of the same kind or another: to move to Cassandra, or back.

    Everything goes over: queues with their configuration, messages with their order, keys, delays
    and attempts, what was acked, what makes a repeated publish known. Both sides are read again and
    compared before servers may use the copy. The copy goes on with far greater epochs, so message
    ids and fences are never given out twice: serve it instead of the source, not beside it.

    No server may use either side meanwhile. A copy that was stopped continues when the same
    command is run again; until it is finished no server opens its target.

    Exit status: 0 done (or done before), 1 failed half-way (run it again), 2 refused, 3 done, but
    the source has damaged rows: they were copied as they are.

    Parameters
    ----------
    source
        The store to copy: sqlite:DIR or cassandra://HOST[,HOST…][:PORT]/KEYSPACE.
    target
        The target: a missing or empty folder or keyspace.
    dry_run
        Say what would be copied, or why it would be refused, and change nothing.
    json
        Print what was copied as JSON: counts, and a checksum for each shard.
    """
    from pushlane_storage.copy.command import run

    run(source, target, dry_run=dry_run, json=json)


def folder_of(data: str) -> Path:
    """The folder that DATA names: a path, or a store URL."""
    scheme, colon, rest = data.partition(":")
    if not colon or not re.fullmatch("[a-z][a-z0-9+.-]*", scheme):
        rest = data
    elif scheme != "sqlite":
        _end(REFUSED, f"{data} is not an embedded store: give a folder, or sqlite:DIR")
    if not rest or "\0" in rest:
        _end(REFUSED, f"{data!r} names no folder: give one, such as ./pushlane-data")
    return Path(rest)


def _run(work: "Callable[[Path, Progress], Any]", data: str) -> Any:
    from pushlane_storage import errors

    refused = (
        errors.NotAStore,
        errors.BackupNewer,
        errors.TargetNotEmpty,
        errors.TargetUnusable,
        errors.NoSpace,
        errors.BackupUnfinished,
        errors.EpochsExhausted,
    )
    folder = folder_of(data)
    try:
        with _progress() as tell:
            return work(folder, tell)
    except errors.BackupError as error:
        _end(REFUSED if isinstance(error, refused) else FAILED, str(error))


def _report(manifest: "Manifest", done: str, told: dict[str, object], json: bool) -> None:
    import msgspec

    contents = manifest.contents
    if json:
        answer = {**told, "manifest": manifest}
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        print(
            f"{done}: {contents.messages} messages in {contents.tables['segment']} segments,"
            f" {contents.tables['queue']} queues, {manifest.bytes} bytes"
        )
    if contents.damaged:
        found = ", ".join(f"{count} of {table}" for table, count in contents.damaged.items())
        _end(DAMAGED, f"damaged rows in the store, copied as they are: {found}")


def _end(status: int, text: str) -> NoReturn:
    print(f"pushlane store: {text}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def _progress() -> "Iterator[Progress]":
    """A bar on a terminal, else nothing."""
    from pushlane_storage.sqlite.backup import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total or None)

        yield tell
