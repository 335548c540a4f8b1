"""Short ways to open, fill, look into and harm an embedded store."""

import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane_storage.message import Message
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.sqlite.tables import Tables
from tests.storage.samples import START, Owner

BODY = b"x" * 200


class Opened:
    """The stores that a test opens on its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[BaseException] = []
        """What `fail_stop` was told; it doesn't end this process."""
        self._stores: list[SqliteStore] = []

    async def __call__(self, limits: Limits | None = None, **options: Any) -> SqliteStore:
        options.setdefault("fail_stop", self.faults.append)
        store = await SqliteStore.open(self.folder, limits, **options)
        self._stores.append(store)
        return store

    async def again(self, store: SqliteStore, **options: Any) -> SqliteStore:
        await store.close()
        return await self(**options)

    def write(self, text: str) -> None:
        """Put something else into the database's place."""
        self.folder.mkdir(parents=True)
        self.database.write_text(text)

    @property
    def database(self) -> Path:
        return self.folder / "pushlane.db"

    @property
    def backup(self) -> Path:
        """A place for a backup."""
        return self.folder.parent / "backup"

    async def close(self) -> None:
        for store in self._stores:
            await store.close()

    def sql(self, statement: str, *values: object) -> list[Any]:
        """Run a statement behind the store's back."""
        connection = sqlite3.connect(self.database)
        try:
            found = connection.execute(statement, values).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()


class Child:
    """A Python process that runs a script, and says a line when it is ready."""

    def __init__(self, script: str, *args: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, args)], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> str:
        """kill -9; what it had still to say."""
        self.process.kill()
        return self.wait()[1]

    def wait(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=30)
        return self.process.returncode, said


def modes(folder: Path) -> dict[str, int]:
    """Who may use a folder and the files in it."""
    found = [folder, *folder.iterdir()]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


async def fill(owner: Owner, buckets: int, segments: int, count: int = 50) -> None:
    """Store buckets of `segments` × `count` messages of a few hundred bytes."""
    content = [Message(BODY, START)] * count
    for bucket in range(buckets):
        for number in range(segments):
            await owner.append(number * count, content, start=START + bucket)


async def drop_all(owner: Owner) -> None:
    for row in (await owner.store.outline(owner.shard)).buckets:
        await owner.drain(row.key)
        await owner.store.drop(owner.shard, row.key)


Ask = Callable[[], Awaitable[object]]


async def together(calls: Sequence[Ask]) -> list[object]:
    """What each call returned or raised, all begun at once."""
    results: list[object] = [None] * len(calls)

    async def run(number: int) -> None:
        try:
            results[number] = await calls[number]()
        except Exception as error:
            results[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(run, number)
    return results


class Jam:
    """Holds up commits until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._held = threading.Event()
        self._free = threading.Event()
        commit = Tables.commit

        def wait(tables: Tables) -> None:
            self._held.set()
            assert self._free.wait(10)
            commit(tables)

        monkeypatch.setattr(Tables, "commit", wait)

    async def held(self) -> None:
        """A commit is being held up."""
        await until(self._held.is_set)

    def go(self) -> None:
        self._free.set()


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  (threads change it: there is no event)
            await trio.sleep(0.005)
