"""Copying a store while another process, or this one, writes to it.

What is read in one transaction is consistent, but for as long as it lasts the write-ahead log
can't start anew: one long read of a large store would drive the log to its limit, and the server
would have to refuse appends. SQLite's backup interface in small steps is no way out: it begins
again whenever another process has written, so that under load it never comes to an end.

So the copy has two parts. Bodies and dedup marks are nearly all of a store, and never change:
they are rows with ascending numbers, which are written once and at some time deleted. They are
copied in pieces, each a read of a few milliseconds, with a pause at least as long behind it in
which the log can start anew; what came meanwhile is copied likewise, as long as it gets less.
Then everything else is copied in one read, together with the bodies that are still missing: small
rows, a few percent of the whole. Bodies whose segments were deleted meanwhile are thrown out at
the end.

Numbers of bodies are used again only when a store was closed and opened, which raises its epoch.
If that (or a migration) happens between the parts, the copy is begun again; after a few times,
all of it is read at once.

The source is opened read-only: nothing is written there but SQLite's `-shm`, which readers share.
The copy is written without any care for power cuts. The caller makes it durable.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pushlane_storage.errors import BackupNewer, CopyFailed, NotAStore
from pushlane_storage.files import file_size
from pushlane_storage.segment import FORMAT
from pushlane_storage.sqlite.connection import PAGE_BYTES
from pushlane_storage.sqlite.errors import FULL, code_of
from pushlane_storage.sqlite.inspection import Progress, tables_of
from pushlane_storage.sqlite.limits import MIB, Limits
from pushlane_storage.sqlite.schema import APPLICATION

PIECE_BYTES = 2 * MIB
"""Bodies in one read: a few milliseconds."""
PIECE_ROWS = 2_000
PAUSE_S = 0.05
"""The longest pause between two pieces, usually."""
GROWN_BYTES = Limits().wal_bytes // 2
"""Size of the write-ahead log above which we stay away until it has started anew, …"""
LONG_PAUSES = 20
"""… for so many pauses."""
TRIES = 3
"""How often a copy in pieces is begun, should the store be opened anew under it."""
BUSY_S = 5.0
CACHE_KIB = 8_192

BULK = (("payload", "id"), ("mark", "payload"))
"""The tables that are copied in pieces, with their ascending key: that of the body."""


class Source(NamedTuple):
    """What is known of a store before its content is read."""

    version: int
    epoch: int
    """The greatest that was given out."""
    bytes: int
    """What its rows take."""


class Copy:
    def __init__(self, database: Path, target: Path, known: int, progress: Progress) -> None:
        """From a store's database to an empty file. `known`: the newest version of the tables."""
        self._database = database
        self._target = target
        self._known = known
        self._progress = progress
        self._log = database.with_name(database.name + "-wal")
        self._done = 0
        self._total = 0

    def run(self) -> tuple[Source, dict[str, int]]:
        """Copy; what was copied, and how many rows of each table the store had."""
        for _ in range(TRIES):
            with self._connect() as connection:
                before = self._read_source(connection)
                self._done, self._total = 0, before.bytes
                self._make_tables(connection)
                upto = self._copy_bulk(connection)
                connection.execute("BEGIN")
                source = self._read_source(connection)
                if (source.version, source.epoch) == (before.version, before.epoch):
                    return source, self._finish(connection, upto)
        with self._connect() as connection:
            connection.execute("BEGIN")
            source = self._read_source(connection)
            self._make_tables(connection)
            return source, self._finish(connection, 0)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        self._target.write_bytes(b"")
        uri = self._target.absolute().as_uri()
        with closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        ) as connection:
            # Of `main` only: what is said of none in particular goes for the source, too.
            connection.execute("PRAGMA main.journal_mode = OFF").fetchall()
            connection.execute("PRAGMA main.synchronous = OFF")
            connection.execute("PRAGMA main.secure_delete = OFF").fetchall()
            connection.execute(f"PRAGMA main.cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA main.page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA main.auto_vacuum = INCREMENTAL")
            attach(connection, self._database)
            yield connection

    def _read_source(self, connection: sqlite3.Connection) -> Source:
        return read_source(connection, self._database, self._known)

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        found = connection.execute(
            "SELECT sql FROM source.sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name"
        ).fetchall()
        for (statement,) in found:
            connection.execute(statement)

    def _copy_bulk(self, connection: sqlite3.Connection) -> int:
        """Bodies and marks, in pieces. Answers the number up to which all are there."""
        upto, share = 0, self._total
        with closing(_read_only(self._database)) as reader:
            connection.execute("BEGIN")
            while True:
                last, began = _last(reader), self._done
                while upto < last and (piece := self._copy_piece(connection, reader, upto)) > upto:
                    upto = piece
                # What came meanwhile is worth a round of its own if rounds get shorter by it.
                copied = self._done - began
                if copied <= PIECE_BYTES or copied > share:
                    break
                share = copied // 2
            connection.execute("COMMIT")
        return upto

    def _copy_piece(
        self, connection: sqlite3.Connection, reader: sqlite3.Connection, after: int
    ) -> int:
        """Up to which number it went: `after` itself when nothing is there any more."""
        began = time.monotonic()
        bodies, size = _bodies(reader, after)
        upto = bodies[-1][0] if bodies else after
        marks = reader.execute(
            "SELECT payload, marks FROM mark WHERE payload > ? AND payload <= ?", (after, upto)
        ).fetchall()
        took = time.monotonic() - began
        connection.executemany("INSERT OR IGNORE INTO payload VALUES (?, ?)", bodies)
        connection.executemany("INSERT OR IGNORE INTO mark VALUES (?, ?)", marks)
        self._done += size
        self._progress("copying", min(self._done, self._total), self._total)
        self._step_aside(min(took, PAUSE_S))
        return upto

    def _step_aside(self, seconds: float) -> None:
        """Let the log start anew: for as long as we read, and longer when it has grown too much."""
        time.sleep(seconds)
        for _ in range(LONG_PAUSES):
            if file_size(self._log) <= GROWN_BYTES:
                break
            time.sleep(PAUSE_S)

    def _finish(self, connection: sqlite3.Connection, upto: int) -> dict[str, int]:
        rows = self._copy_rest(connection, upto)
        connection.execute("COMMIT")
        self._progress("copying", self._total, self._total)
        connection.execute("DETACH source")
        self._tidy(connection)
        return rows

    def _copy_rest(self, connection: sqlite3.Connection, upto: int) -> dict[str, int]:
        """Everything else, in one read. The rows of each table that the source has."""
        bulk, rows = dict(BULK), {}
        for table in tables_of(connection, "source"):
            if table in bulk:
                connection.execute(
                    f"INSERT OR IGNORE INTO main.{table} SELECT * FROM source.{table}"
                    f" WHERE {bulk[table]} > ?",
                    (upto,),
                )
            else:
                copied = connection.execute(
                    f'INSERT OR IGNORE INTO main."{table}" SELECT * FROM source."{table}"'
                )
                rows[table] = copied.rowcount
        for pragma in ("application_id", "user_version"):
            [value] = connection.execute(f"PRAGMA source.{pragma}").fetchone()
            connection.execute(f"PRAGMA main.{pragma} = {value}")
        return rows

    def _tidy(self, connection: sqlite3.Connection) -> None:
        """Throw out what the store deleted while it was copied."""
        for table, key in BULK:
            connection.execute(
                f"DELETE FROM {table} WHERE {key} NOT IN (SELECT payload FROM segment)"
            )
        connection.executescript("PRAGMA incremental_vacuum")


def _bodies(reader: sqlite3.Connection, after: int) -> tuple[list[tuple[int, bytes]], int]:
    """The next ones, and their size."""
    bodies, size = [], 0
    with closing(
        reader.execute("SELECT id, body FROM payload WHERE id > ? ORDER BY id", (after,))
    ) as cursor:
        for id, body in cursor:
            bodies.append((id, body))
            size += len(body or b"")
            if size >= PIECE_BYTES or len(bodies) >= PIECE_ROWS:
                break
    return bodies, size


def _last(reader: sqlite3.Connection) -> int:
    [found] = reader.execute("SELECT max(id) FROM payload").fetchone()
    return found or 0


def _read_only(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S
    )
    connection.text_factory = bytes  # damage may have left anything in a body
    return connection


def attach(connection: sqlite3.Connection, database: Path) -> None:
    if not database.is_file():
        raise NotAStore(database.parent, f"there is no {database.name} in it")
    try:
        connection.execute("ATTACH ? AS source", (f"{database.absolute().as_uri()}?mode=ro",))
    except sqlite3.DatabaseError as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise NotAStore(database.parent, f"{database.name} is not a database") from error
        raise


def read_source(connection: sqlite3.Connection, database: Path, known: int) -> Source:
    """The store that is attached as `source`, if it is one that we can read."""

    def value(query: str) -> int:
        [found] = connection.execute(query).fetchone()
        return int(found or 0)

    version = value("PRAGMA source.user_version")
    if value("PRAGMA source.application_id") != APPLICATION or not version:
        raise NotAStore(database.parent, f"{database.name} was not made by Pushlane")
    format = value("SELECT value FROM source.meta WHERE name = 'format'")
    for found, newest in ((version, known), (format, FORMAT)):
        if found > newest:
            raise BackupNewer(database.parent, found, newest)
    pages = value("PRAGMA source.page_count") - value("PRAGMA source.freelist_count")
    return Source(
        version,
        max(
            value("SELECT value FROM source.meta WHERE name = 'epoch'"),
            value("SELECT max(epoch) FROM source.slot"),
        ),
        pages * value("PRAGMA source.page_size"),
    )


def copy_error(error: sqlite3.Error, database: Path, target: Path) -> CopyFailed | None:
    """What is told of an error of SQLite; None says that the target's disk is full."""
    if code_of(error) == FULL:
        return None
    return CopyFailed(
        f"copying {database} to {target} failed: {error}; check both disks. If the database"
        " itself is damaged, stop the server and keep a copy of its whole folder"
    )
