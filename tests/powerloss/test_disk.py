"""The disk: what is durable when, and what damage can do to the rest."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from tests.powerloss.damage import KINDS, Kept, Lost, Reordered, Torn
from tests.powerloss.disk import Damage, Disk, Lies
from tests.powerloss.log import DamagedLog, Kind, Record

ROOT, FILE, OTHER = 1, 2, 3


def begin() -> Record:
    return Record(Kind.BEGIN, ROOT, 0, "", b"")


def create(path: str, inode: int = FILE, kind: Kind = Kind.CREATE) -> Record:
    return Record(kind, inode, 0, path, b"")


def write(data: bytes, offset: int = 0, inode: int = FILE) -> Record:
    return Record(Kind.WRITE, inode, offset, "", data)


def sync(inode: int, path: str = "", number: int = 1) -> list[Record]:
    return [
        Record(Kind.SYNC_BEGIN, inode, number, path, b""),
        Record(Kind.SYNC_END, inode, number, "", b""),
    ]


def disk_of(records: Iterable[Record], lies: Lies = lambda path: False) -> Disk:
    disk = Disk(lies)
    for record in [begin(), *records]:
        disk.feed(record)
    return disk


def lost(records: Iterable[Record], lies: Lies = lambda path: False) -> dict[str, bytes | None]:
    return disk_of(records, lies).image(Lost())


def kept(records: Iterable[Record]) -> dict[str, bytes | None]:
    return disk_of(records).image(Kept())


def test_a_synced_file_is_gone_with_its_name() -> None:
    records = [create("a"), write(b"data"), *sync(FILE, "a")]
    assert lost(records) == {}
    assert lost([*records, *sync(ROOT)]) == {"a": b"data"}


def test_a_synced_name_without_data_is_an_empty_file() -> None:
    assert lost([create("a"), write(b"data"), *sync(ROOT)]) == {"a": b""}


def test_a_folder_needs_its_own_name() -> None:
    inside = [create("d", OTHER, Kind.MKDIR), create("d/a"), write(b"x"), *sync(FILE, "d/a")]
    assert lost([*inside, *sync(OTHER, "d")]) == {}
    assert lost([*inside, *sync(ROOT)]) == {"d": None}
    assert lost([*inside, *sync(OTHER, "d"), *sync(ROOT)]) == {"d": None, "d/a": b"x"}


def test_what_is_written_during_a_sync_is_not_part_of_it() -> None:
    start, end = sync(FILE, "a")
    names = [create("a"), *sync(ROOT)]
    assert lost([*names, write(b"one"), start, write(b"two", 3)]) == {"a": b""}
    assert lost([*names, write(b"one"), start, write(b"two", 3), end]) == {"a": b"one"}


def test_two_syncs_at_once() -> None:
    first, second = sync(FILE, "a", 1), sync(FILE, "a", 2)
    records = [
        create("a"), *sync(ROOT), write(b"one"), first[0], write(b"two", 3), second[0],
        second[1], write(b"three", 6), first[1],
    ]  # fmt: skip
    assert lost(records) == {"a": b"onetwo"}


def test_renames_and_unlinks_are_pending_too() -> None:
    records = [create("a"), write(b"x"), *sync(FILE, "a"), *sync(ROOT)]
    rename = Record(Kind.RENAME, 0, 0, "a", b"b")
    assert lost([*records, rename]) == {"a": b"x"}
    assert kept([*records, rename]) == {"b": b"x"}
    assert lost([*records, rename, *sync(ROOT)]) == {"b": b"x"}
    assert lost([*records, Record(Kind.UNLINK, 0, 0, "a", b"")]) == {"a": b"x"}


def test_an_inode_that_is_used_again_is_another_file() -> None:
    old = [create("a"), write(b"old"), *sync(FILE, "a"), *sync(ROOT)]
    new = [Record(Kind.UNLINK, 0, 0, "a", b""), create("b"), write(b"new"), *sync(FILE, "b")]
    assert lost([*old, *new]) == {"a": b"old"}
    assert kept([*old, *new]) == {"b": b"new"}


def test_sizes_are_changes_like_others() -> None:
    records = [create("a"), write(b"12345678"), *sync(FILE, "a"), *sync(ROOT)]
    shorter = [*records, Record(Kind.TRUNCATE, FILE, 3, "", b"")]
    longer = [*records, Record(Kind.ALLOCATE, FILE, 10, "", b"")]
    assert (lost(shorter), kept(shorter)) == ({"a": b"12345678"}, {"a": b"123"})
    assert (lost(longer), kept(longer)) == ({"a": b"12345678"}, {"a": b"12345678\0\0"})


def test_a_disk_that_lies() -> None:
    records = [create("a"), *sync(ROOT), write(b"data"), *sync(FILE, "a")]
    assert lost(records, lambda path: path == "a") == {"a": b""}


def test_a_write_to_an_unknown_file_is_refused() -> None:
    with pytest.raises(DamagedLog, match="never created"):
        lost([write(b"x")])


# Damage

SYNCED = [create("a"), write(b"." * 4096), *sync(FILE, "a"), *sync(ROOT)]


def contents(damage: Damage, records: list[Record]) -> bytes:
    content = disk_of([*SYNCED, *records]).image(damage)["a"]
    assert content is not None
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_damage_touches_nothing_that_is_synced(kind: str) -> None:
    for seed in range(50):
        damage = KINDS[kind](Random(seed))
        content = contents(damage, [write(b"x" * 1000, 1000), write(b"y" * 1000, 3000)])
        assert content[:1000] == b"." * 1000
        assert content[2000:3000] == b"." * 1000
        assert set(content) <= set(b".xy")


def test_torn_and_reordered_happen() -> None:
    records = [write(b"x" * 1024, 512), write(b"y" * 1024, 2048)]
    torn = {contents(Torn(Random(seed)), records) for seed in range(200)}
    assert len(torn) > 20
    assert not any(b"y" in content and b"x" * 1024 not in content for content in torn)
    reordered = [contents(Reordered(Random(seed)), records) for seed in range(200)]
    assert any(b"y" in content and b"x" not in content for content in reordered)
    assert any(b"x" in content and b"y" not in content for content in reordered)


def test_a_file_may_have_grown_without_its_data() -> None:
    grown = [contents(Torn(Random(seed)), [write(b"x" * 512, 4096)]) for seed in range(100)]
    assert b"." * 4096 + bytes(512) in grown
