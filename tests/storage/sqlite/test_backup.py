"""Backups: what is in them, what they leave alone, and when there is none."""

import hashlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.errors import (
    BackupError,
    BackupNewer,
    BackupUnfinished,
    ChecksumMismatch,
    CopyFailed,
    CountsDiffer,
    FolderForeign,
    ManifestDamaged,
    NoSpace,
    NotAStore,
    TargetNotEmpty,
    TargetUnusable,
)
from pushlane_storage.interface import Backend
from pushlane_storage.outcome import settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite import copying
from pushlane_storage.sqlite.backup import backup, verify
from pushlane_storage.sqlite.manifest import Manifest, read_manifest, write_manifest
from pushlane_storage.sqlite.restore import restore
from pushlane_storage.sqlite.schema import STEPS
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.usage import Usage, UsageKey
from tests.storage.samples import (
    FULL_CONFIG,
    FULL_MESSAGE,
    START,
    Owner,
    claimed,
    claimed_all,
    full_settlement,
    messages,
)
from tests.storage.sqlite.test_damage import HARMS
from tests.storage.sqlite.test_opening import TestTheVersion
from tests.storage.sqlite.tools import Opened, drop_all, fill


@pytest.fixture
def target(folder: Path) -> Path:
    return folder.parent / "backup"


async def rich(store: Backend) -> Owner:
    """A shard that uses every table."""
    row = await store.catalog.create("t", "q", FULL_CONFIG)
    await store.catalog.create("t", "plain", QueueConfig())
    owner = await claimed(store, row.id)
    await owner.append(0, [FULL_MESSAGE, *messages(3, dedup="d")])
    await owner.append(4, messages(5, not_before=START))
    await owner.append(0, messages(2), lane=9)
    await settle(store, owner.shard, [full_settlement(owner, 0, owner.bucket())])
    await store.write_seal(owner.shard, Seal(owner.epoch, [(4, 0, 1)], [(0, 2)]))
    await store.usage.put([Usage(UsageKey("t", "q", 5, "n"), {"published": 11})])
    return owner


async def everything(store: Backend, owner: Owner) -> list[object]:
    """What the interface says of it."""
    shard = owner.shard
    buckets = (await store.outline(shard)).buckets
    found: list[object] = [
        await store.catalog.list("t", "", 100),
        buckets,
        (await store.outline(shard)).seals,
        await store.due(shard, 0, 1 << 60, 100),
        await store.usage.read("t", 0, 100),
    ]
    for bucket in buckets:
        found += await store.heads(shard, bucket.key)
        found += await store.segments(shard, bucket.key, 0, 1_000_000)
        found += await store.settlements(shard, bucket.key)
    return found


async def served_again(folder: Path, place: Path, owner: Owner) -> list[object]:
    """What is in a restored backup."""
    restore(folder, place)
    store = await SqliteStore.open(place)
    try:
        return await everything(store, owner)
    finally:
        await store.close()


async def test_everything_is_in_it(opened: Opened, target: Path) -> None:
    store = await opened()
    owner = await rich(store)
    manifest = await store.backup(target)
    assert manifest == verify(target) == read_manifest(target)
    assert sorted(path.name for path in opened.backup.iterdir()) == ["backup.db", "manifest.json"]
    contents = manifest.contents
    tables = contents.tables
    assert (tables["queue"], tables["bucket"], tables["segment"]) == (2, 2, 3)
    assert (tables["settlement"], tables["seal"], tables["schedule"]) == (1, 1, 6)
    assert (contents.messages, contents.damaged) == (11, {})
    assert (manifest.version, manifest.epoch) == (len(STEPS), 1)
    file = target / "backup.db"
    assert manifest.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert manifest.bytes == file.stat().st_size
    found = await served_again(target, opened.folder.parent / "again", owner)
    assert found == await everything(store, owner)


async def test_a_backup_of_a_store_that_is_not_served(opened: Opened, target: Path) -> None:
    store = await opened()
    owner = await rich(store)
    before = await everything(store, owner)
    await store.close()
    database = opened.database.read_bytes()
    backup(opened.folder, target)
    assert opened.database.read_bytes() == database
    assert await served_again(target, opened.folder.parent / "again", owner) == before


async def test_a_log_that_a_crash_left_is_read_and_left_alone(opened: Opened, target: Path) -> None:
    store = await opened()
    owner = await rich(store)
    crashed = opened.folder.parent / "crashed"
    shutil.copytree(opened.folder, crashed)
    files = {path: path.read_bytes() for path in crashed.iterdir() if "shm" not in path.name}
    assert len(files[crashed / "pushlane.db-wal"]) > 10_000
    backup(crashed, target)
    assert {path: path.read_bytes() for path in files} == files
    found = await served_again(target, opened.folder.parent / "again", owner)
    assert found == await everything(store, owner)


async def test_the_same_content_has_the_same_digest(opened: Opened, target: Path) -> None:
    store = await opened()
    owner = await rich(store)
    first = await store.backup(target / "1")
    second = await store.backup(target / "2")
    assert first.contents == second.contents
    await owner.settle(1, owner.bucket(), acked=[(1, 1)])
    third = await store.backup(target / "3")
    assert third.contents.digest != first.contents.digest


async def test_an_empty_store(opened: Opened, target: Path) -> None:
    manifest = await (await opened()).backup(target)
    assert (manifest.contents.messages, manifest.contents.tables["queue"]) == (0, 0)
    restore(target, opened.folder.parent / "again")


async def test_a_migrated_folder(opened: Opened, target: Path) -> None:
    steps = (*STEPS, TestTheVersion.step_2, TestTheVersion.step_3)
    store = await opened()
    owner = await rich(store)
    store = await opened.again(store, steps=steps)
    manifest = await store.backup(target)
    assert manifest.version == len(steps)
    assert manifest.contents.tables["more"] == 0
    with pytest.raises(BackupNewer):
        verify(target)
    place = opened.folder.parent / "again"
    with pytest.raises(BackupNewer):
        restore(target, place)
    assert not place.exists()
    restore(target, place, known=len(steps))
    again = await SqliteStore.open(place, steps=steps)
    assert await everything(again, owner) == await everything(store, owner)
    await again.close()


async def test_an_older_backup_is_migrated_when_it_is_opened(opened: Opened, target: Path) -> None:
    store = await opened()
    owner = await rich(store)
    await store.backup(target)
    place = opened.folder.parent / "again"
    restore(target, place)
    again = await SqliteStore.open(place, steps=(*STEPS, TestTheVersion.step_2))
    assert await everything(again, owner) == await everything(store, owner)
    await again.close()


class TestDamage:
    @pytest.mark.parametrize("harm", HARMS)
    async def test_a_damaged_segment_is_copied_and_counted(
        self, opened: Opened, target: Path, harm: str
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        for number in range(4):
            await owner.append(3 * number, messages(3, dedup="d"))
        await store.close()
        opened.sql(harm)
        store = await opened()
        manifest = await store.backup(target)
        assert manifest.contents.damaged == {"segment": 1}
        assert manifest.contents.tables["segment"] == 4
        place = opened.folder.parent / "again"
        assert restore(target, place).manifest == manifest
        again = await SqliteStore.open(place)
        assert await everything(again, owner) == await everything(store, owner)
        await again.close()

    @pytest.mark.parametrize(
        ("harm", "table"),
        [
            ("UPDATE settlement SET body = x'90'", "settlement"),
            ("UPDATE seal SET checksum = 1", "seal"),
            ("UPDATE bucket SET drained = 1 WHERE lane = 9", "bucket"),
            ("UPDATE bucket SET first = 'x' WHERE lane = 9", "bucket"),
        ],
    )
    async def test_so_are_other_rows(
        self, opened: Opened, target: Path, harm: str, table: str
    ) -> None:
        store = await opened()
        await rich(store)
        opened.sql(harm)
        assert (await store.backup(target)).contents.damaged == {table: 1}
        verify(target)

    async def test_damage_that_only_the_copy_has_is_no_backup(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def tidy(copy: object, connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE payload SET body = x'90' WHERE id = 1")

        monkeypatch.setattr(copying.Copy, "_tidy", tidy)
        store = await opened()
        await rich(store)
        with pytest.raises(CopyFailed, match="and not in the store"):
            await store.backup(target)
        assert not opened.backup.exists()

    async def test_a_row_that_only_the_copy_lacks_is_no_backup(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def tidy(copy: object, connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM settlement")

        monkeypatch.setattr(copying.Copy, "_tidy", tidy)
        store = await opened()
        await rich(store)
        with pytest.raises(CountsDiffer, match="settlement 1 and not 0"):
            await store.backup(target)
        assert not opened.backup.exists()

    async def test_a_database_that_is_damaged_as_a_whole(
        self, opened: Opened, target: Path
    ) -> None:
        store = await opened()
        await fill(await claimed(store), 2, 50)
        await store.close()
        with opened.database.open("r+b") as file:
            for page in range(3, opened.database.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xff" * 8)
        with pytest.raises((CopyFailed, ChecksumMismatch)):
            backup(opened.folder, target)
        assert not opened.backup.exists()


class TestWhileItIsServed:
    async def test_what_is_written_and_dropped_meanwhile(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every piece is a moment of its own; what counts is the last one."""
        monkeypatch.setattr(copying, "PIECE_ROWS", 3)
        store = await opened()
        owner, dropped = await claimed_all(store, ShardKey("kept", 0), ShardKey("dropped", 0))
        await fill(owner, 2, 10)
        await fill(dropped, 2, 10)
        pieces = 0

        def meanwhile(stage: str, done: int, total: int) -> None:
            nonlocal pieces
            pieces += 1
            if pieces == 3:
                trio.from_thread.run(drop_all, dropped)
            if pieces in (4, 5):
                trio.from_thread.run(owner.append, 100 * pieces, messages(7, dedup="m"), 2)

        manifest = await store.backup(target, meanwhile)
        assert pieces > 10
        found = await served_again(target, opened.folder.parent / "again", owner)
        assert found == await everything(store, owner)
        assert manifest.contents.tables["payload"] == manifest.contents.tables["segment"]

    @pytest.mark.parametrize("openings", [1, 5])
    async def test_a_store_that_is_opened_again_meanwhile(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch, openings: int
    ) -> None:
        """The numbers of bodies begin again: what was copied before is worth nothing."""
        monkeypatch.setattr(copying, "PIECE_ROWS", 5)
        store = await opened()
        owner = await claimed(store)
        await fill(owner, 1, 20)
        copied = copying.Copy._copy_bulk
        left = openings

        async def reopen() -> None:
            nonlocal store
            await drop_all(owner)
            await trio.sleep(0.05)  # swept
            store = await opened.again(store)
            owner.store, owner.epoch = store, await store.ownership.claim(slot_of(owner.shard), "n")
            await fill(owner, 1, 10, count=3)

        def copy_bulk(copy: copying.Copy, connection: sqlite3.Connection) -> int:
            nonlocal left
            upto = copied(copy, connection)
            if left:
                left -= 1
                trio.from_thread.run(reopen)
            return upto

        monkeypatch.setattr(copying.Copy, "_copy_bulk", copy_bulk)
        await trio.to_thread.run_sync(backup, opened.folder, target)
        assert left == max(0, openings - copying.TRIES)
        found = await served_again(target, opened.folder.parent / "again", owner)
        assert found == await everything(store, owner)
        assert verify(target).contents.damaged == {}

    async def test_it_can_be_cancelled(self, opened: Opened, target: Path) -> None:
        store = await opened()
        await rich(store)
        with trio.CancelScope() as scope:
            await store.backup(target, lambda *_: trio.from_thread.run_sync(scope.cancel))
        assert scope.cancelled_caught
        assert not opened.backup.exists()
        await store.backup(target)


class TestNoBackup:
    def test_no_such_folder(self, folder: Path, target: Path) -> None:
        with pytest.raises(NotAStore, match=r"no pushlane\.db"):
            backup(folder, target)
        assert not folder.exists()
        assert not target.exists()

    @pytest.mark.parametrize("text", ["not a database, but long enough to be one" * 100, ""])
    async def test_a_file_that_is_no_store(self, opened: Opened, target: Path, text: str) -> None:
        opened.write(text)
        with pytest.raises(NotAStore, match=r"pushlane\.db"):
            backup(opened.folder, target)
        assert not opened.backup.exists()

    async def test_a_database_of_somebody_else(self, opened: Opened, target: Path) -> None:
        opened.write("")
        opened.sql("CREATE TABLE theirs (x)")
        with pytest.raises(NotAStore, match="not made by Pushlane"):
            backup(opened.folder, target)

    async def test_a_newer_store(self, opened: Opened, target: Path) -> None:
        await (await opened(steps=(*STEPS, TestTheVersion.step_2))).close()
        with pytest.raises(BackupNewer) as refused:
            backup(opened.folder, target)
        assert (refused.value.found, refused.value.known) == (len(STEPS) + 1, len(STEPS))
        opened.sql(f"PRAGMA user_version = {len(STEPS)}")
        opened.sql("UPDATE meta SET value = 2 WHERE name = 'format'")
        with pytest.raises(BackupNewer):
            backup(opened.folder, target)
        assert not opened.backup.exists()

    async def test_a_target_that_is_not_empty(self, opened: Opened, target: Path) -> None:
        store = await opened()
        opened.backup.mkdir()
        (target / "precious").write_text("data")
        with pytest.raises(TargetNotEmpty, match="precious"):
            await store.backup(target)
        assert (target / "precious").read_text() == "data"
        (target / "precious").unlink()
        await store.backup(target)
        with pytest.raises(TargetNotEmpty):
            await store.backup(target)
        verify(target)

    async def test_a_target_that_can_not_be(self, opened: Opened, target: Path) -> None:
        store = await opened()
        opened.backup.write_text("a file")
        with pytest.raises((TargetNotEmpty, TargetUnusable)):
            await store.backup(target)
        with pytest.raises((TargetNotEmpty, TargetUnusable)):
            await store.backup(target / "below")
        assert opened.backup.read_text() == "a file"

    async def test_too_little_room_is_seen_before(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        monkeypatch.setattr("pushlane_storage.sqlite.backup.free_bytes", lambda path: 4096)
        with pytest.raises(NoSpace) as refused:
            await store.backup(target)
        assert refused.value.free == 4096 < refused.value.needed
        assert not opened.backup.exists()

    @pytest.fixture
    def small_disk(self, target: Path) -> Iterator[None]:
        target.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(target)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("only root may mount a small file system")
        yield
        subprocess.run(["umount", "--lazy", str(target)], check=True)

    @pytest.mark.usefixtures("small_disk")
    async def test_a_disk_that_is_full_half_way(
        self, opened: Opened, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        await fill(await claimed(store), 2, 50)
        monkeypatch.setattr("pushlane_storage.sqlite.backup._check_room", lambda *_: None)
        with pytest.raises(NoSpace):
            await store.backup(target)
        assert list(opened.backup.iterdir()) == []

    async def test_a_backup_is_not_served(self, opened: Opened, target: Path) -> None:
        await (await opened()).backup(target)
        with pytest.raises(FolderForeign, match="is a backup"):
            await SqliteStore.open(target)
        verify(target)


class TestABackupThatIsNotWhole:
    @pytest.fixture
    async def made(self, opened: Opened, target: Path) -> Manifest:
        store = await opened()
        await rich(store)
        return await store.backup(target)

    @staticmethod
    def assert_refused(target: Path, kind: type[BackupError], match: str) -> None:
        place = target.parent / "again"
        for call in (lambda: verify(target), lambda: restore(target, place)):
            with pytest.raises(kind, match=match):
                call()
        assert not place.exists()

    async def test_without_a_manifest(self, made: Manifest, target: Path) -> None:
        (target / "manifest.json").rename(target / "manifest.json.part")
        self.assert_refused(target, BackupUnfinished, "interrupted")
        shutil.rmtree(target)
        self.assert_refused(target, BackupUnfinished, "no manifest")

    async def test_without_a_database(self, made: Manifest, target: Path) -> None:
        (target / "backup.db").unlink()
        self.assert_refused(target, ChecksumMismatch, "No such file")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (b'"messages": 11', b'"messages": 12'),
            (b'"taken_at": 1', b'"taken_at": 9'),
            (b'"epoch"', b'"epoxh"'),
            (b"}", b""),
            (b'"checksum": "', b'"checksum": "0'),
        ],
    )
    async def test_a_changed_manifest(
        self, made: Manifest, target: Path, old: bytes, new: bytes
    ) -> None:
        path = target / "manifest.json"
        text = path.read_bytes()
        assert old in text
        path.write_bytes(text.replace(old, new))
        self.assert_refused(target, ManifestDamaged, "use another backup")

    async def test_a_manifest_of_a_later_form(self, made: Manifest, target: Path) -> None:
        (target / "manifest.json").write_text('{"format": 2, "news": true}')
        self.assert_refused(target, BackupNewer, "use that version")

    async def test_any_flipped_bit(self, made: Manifest, target: Path) -> None:
        path = target / "backup.db"
        whole = path.read_bytes()
        for place in range(0, len(whole), 997):
            path.write_bytes(
                whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
            )
            with pytest.raises(ChecksumMismatch, match="SHA-256"):
                verify(target)
        self.assert_refused(target, ChecksumMismatch, "SHA-256")
        path.write_bytes(whole[:-1])
        self.assert_refused(target, ChecksumMismatch, "bytes")

    async def test_other_counts(self, made: Manifest, target: Path) -> None:
        """A manifest that was right in form only: as if the copy had gone wrong unseen."""
        for change in (
            {"tables": {**made.contents.tables, "queue": 3}},
            {"messages": 12},
            {"damaged": {"segment": 1}},
        ):
            contents = msgspec.structs.replace(made.contents, **change)
            write_manifest(target, msgspec.structs.replace(made, contents=contents))
            self.assert_refused(target, CountsDiffer, "and not")

    async def test_another_digest(self, made: Manifest, target: Path) -> None:
        contents = msgspec.structs.replace(made.contents, digest="0" * 64)
        write_manifest(target, msgspec.structs.replace(made, contents=contents))
        self.assert_refused(target, ChecksumMismatch, "digest of its rows")

    async def test_rows_that_fit_no_more(self, made: Manifest, target: Path) -> None:
        """The same counts, and another content: the file's sum was made right again."""
        connection = sqlite3.connect(target / "backup.db")
        connection.execute("UPDATE queue SET version = 7")
        connection.commit()
        connection.close()
        path = target / "backup.db"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        write_manifest(target, msgspec.structs.replace(made, sha256=digest))
        self.assert_refused(target, ChecksumMismatch, "digest of its rows")

    async def test_a_structure_that_is_broken(self, made: Manifest, target: Path) -> None:
        path = target / "backup.db"
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        write_manifest(target, msgspec.structs.replace(made, sha256=digest))
        self.assert_refused(target, ChecksumMismatch, "use another backup")
