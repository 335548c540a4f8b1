"""Opening a folder: made durably, locked, of the right version, with an epoch of its own."""

import os
import sqlite3
from pathlib import Path

import pytest

from pushlane_storage import files
from pushlane_storage.errors import FolderForeign, FolderLocked, FolderNewer, FolderUnusable
from pushlane_storage.interface import Fenced
from pushlane_storage.sqlite.folder import open_folder
from pushlane_storage.sqlite.schema import STEPS
from tests.storage.samples import claimed, messages
from tests.storage.sqlite.tools import Child, Opened, modes

HOLDER = """
import sys, trio
from pushlane_storage.sqlite.store import SqliteStore

async def main():
    await SqliteStore.open(sys.argv[1])
    print("open", flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


class TestTheFolder:
    async def test_it_is_made_with_its_parents(self, opened: Opened) -> None:
        opened.folder = opened.folder / "a" / "b"
        await opened()
        assert sorted(path.name for path in opened.folder.iterdir()) == [
            "lock",
            "pushlane.db",
            "pushlane.db-shm",
            "pushlane.db-wal",
        ]

    async def test_every_folder_with_a_new_entry_is_synced(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[Path] = []
        sync = files.sync_folder

        def record(path: Path) -> None:
            synced.append(path)
            sync(path)

        monkeypatch.setattr(files, "sync_folder", record)
        opened.folder = opened.folder / "a"
        await opened()
        assert synced == [opened.folder.parent.parent, opened.folder.parent, opened.folder]

    async def test_it_can_be_opened_again(self, opened: Opened) -> None:
        store = await opened()
        store = await opened.again(store)
        await store.close()
        await store.close()
        assert {path.name for path in opened.folder.iterdir()} == {"lock", "pushlane.db"}

    def test_a_file_in_its_place(self, folder: Path) -> None:
        folder.write_text("")
        with pytest.raises(FolderUnusable, match=str(folder)):
            open_folder(folder)

    async def test_something_else_in_the_place_of_the_database(self, opened: Opened) -> None:
        opened.folder = opened.database  # so that the database itself is a folder
        await (await opened()).close()
        opened.folder = opened.folder.parent
        with pytest.raises(FolderUnusable, match="can't be opened"):
            await opened()
        open_folder(opened.folder).close()  # it was unlocked again

    @pytest.mark.parametrize("text", ["not a database, but long enough to be one" * 100, "short"])
    async def test_a_file_that_is_no_database(self, opened: Opened, text: str) -> None:
        opened.write(text)
        with pytest.raises(FolderForeign, match="not a database"):
            await opened()
        assert opened.database.read_text() == text

    async def test_a_database_of_somebody_else(self, opened: Opened) -> None:
        opened.write("")
        opened.sql("CREATE TABLE theirs (x)")
        with pytest.raises(FolderForeign, match="not made by Pushlane"):
            await opened()
        assert opened.sql("SELECT name FROM sqlite_schema") == [("theirs",)]


class TestTheLock:
    async def test_a_second_store_is_refused(self, opened: Opened) -> None:
        store = await opened()
        with pytest.raises(FolderLocked, match=f"process {os.getpid()}") as refused:
            await opened()
        assert refused.value.folder == opened.folder
        await opened.again(store)

    async def test_a_second_process_is_refused(self, opened: Opened) -> None:
        holder = Child(HOLDER, opened.folder)
        assert holder.line() == "open"
        with pytest.raises(FolderLocked, match=f"process {holder.process.pid}") as refused:
            await opened()
        assert refused.value.pid == holder.process.pid
        holder.kill()
        await opened()  # the lock died with its process

    def test_the_holder_may_be_unknown(self, folder: Path) -> None:
        held = open_folder(folder)
        (folder / "lock").write_text("")
        with pytest.raises(FolderLocked, match="another process") as refused:
            open_folder(folder)
        assert refused.value.pid is None
        held.close()
        held.close()
        open_folder(folder).close()


class TestTheVersion:
    @staticmethod
    def step_2(connection: sqlite3.Connection) -> None:
        """A step as a later version may have it: a column more, filled for what is there."""
        connection.execute("ALTER TABLE bucket ADD COLUMN archived INTEGER NOT NULL DEFAULT 0")
        connection.execute("UPDATE bucket SET archived = 1")

    @staticmethod
    def step_3(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE more (x)")

    async def test_an_older_folder_is_brought_up_step_by_step(self, opened: Opened) -> None:
        store = await opened()
        owner = await claimed(store)
        segment = await owner.append(0, messages(3))
        store = await opened.again(store, steps=(*STEPS, self.step_2, self.step_3))
        assert opened.sql("PRAGMA user_version") == [(len(STEPS) + 2,)]
        assert opened.sql("SELECT archived FROM bucket") == [(1,)]
        assert opened.sql("SELECT * FROM more") == []
        assert await store.segments(owner.shard, segment.bucket, 0, 10) == [segment]

    async def test_a_step_that_fails_changes_nothing(self, opened: Opened) -> None:
        def step(connection: sqlite3.Connection) -> None:
            self.step_2(connection)
            raise RuntimeError("no power")

        store = await opened()
        with pytest.raises(RuntimeError, match="no power"):
            await opened.again(store, steps=(*STEPS, step))
        assert opened.sql("PRAGMA user_version") == [(len(STEPS),)]
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            opened.sql("SELECT archived FROM bucket")
        await opened()

    async def test_a_newer_folder_is_refused(self, opened: Opened) -> None:
        await (await opened(steps=(*STEPS, self.step_2))).close()
        with pytest.raises(FolderNewer, match=str(opened.folder)) as refused:
            await opened()
        assert (refused.value.found, refused.value.known) == (len(STEPS) + 1, len(STEPS))
        await opened(steps=(*STEPS, self.step_2))

    async def test_segments_of_a_newer_format_are_refused(self, opened: Opened) -> None:
        await (await opened()).close()
        opened.sql("UPDATE meta SET value = 2 WHERE name = 'format'")
        with pytest.raises(FolderNewer):
            await opened()

    async def test_a_creation_that_was_cut_off_is_begun_again(self, opened: Opened) -> None:
        opened.write("")
        store = await opened()
        assert store.stats().epoch == 1
        assert opened.sql("PRAGMA auto_vacuum") == [(2,)]


class TestTheEpoch:
    async def test_it_rises_with_every_opening(self, opened: Opened) -> None:
        store = await opened()
        epochs = [store.stats().epoch]
        for _ in range(3):
            store = await opened.again(store)
            epochs.append(store.stats().epoch)
        assert epochs == [1, 2, 3, 4]

    async def test_the_first_claims_have_it_and_later_ones_more(self, opened: Opened) -> None:
        store = await opened.again(await opened())
        claims = [await store.ownership.claim(slot, "node") for slot in (0, 255, 7, 7, 7)]
        assert claims == [2, 2, 2, 3, 4]
        store = await opened.again(store)
        assert store.stats().epoch == 5
        assert await store.ownership.claim(0, "node") == 5

    async def test_everybody_from_before_is_fenced(self, opened: Opened) -> None:
        store = await opened()
        owner = await claimed(store)
        owner.store = await opened.again(store)
        with pytest.raises(Fenced, match="epoch 2"):
            await owner.append(0, messages(1))


class TestWhoMayReadIt:
    async def test_its_owner_alone(self, opened: Opened) -> None:
        opened.folder = opened.folder / "data"
        before = os.umask(0)
        try:
            await opened()
        finally:
            os.umask(before)
        seen = modes(opened.folder)
        assert seen.pop("data") == 0o700
        assert seen.keys() == {"lock", "pushlane.db", "pushlane.db-shm", "pushlane.db-wal"}
        assert set(seen.values()) == {0o600}

    async def test_files_that_were_open_to_others_are_closed(self, opened: Opened) -> None:
        opened.folder = opened.folder / "data"
        await (await opened()).close()
        (opened.folder / "notes").write_text("somebody else's")
        for path in (opened.folder, *opened.folder.iterdir()):
            path.chmod(0o755)
        await opened()
        seen = modes(opened.folder)
        assert (seen.pop("data"), seen.pop("notes")) == (0o755, 0o755), "it may serve other ends"
        assert set(seen.values()) == {0o600}

    async def test_an_empty_folder_becomes_private(self, opened: Opened) -> None:
        opened.folder = opened.folder / "data"
        opened.folder.mkdir(parents=True)
        opened.folder.chmod(0o755)
        await opened()
        assert modes(opened.folder)["data"] == 0o700
