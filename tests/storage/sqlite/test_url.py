"""Store URLs."""

from pathlib import Path

import pytest

from pushlane_storage.memory import MemoryStore
from pushlane_storage.sqlite.errors import FolderLocked
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import BadStoreUrl, open_store


async def test_memory() -> None:
    store = await open_store("memory:")
    assert isinstance(store, MemoryStore)
    await store.close()


async def test_sqlite(folder: Path) -> None:
    store = await open_store(f"sqlite:{folder}")
    assert isinstance(store, SqliteStore)
    assert (folder / "pushlane.db").is_file()
    with pytest.raises(FolderLocked):
        await open_store(f"sqlite:{folder}")
    await store.close()


async def test_a_relative_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    store = await open_store("sqlite:./here")
    await store.close()
    assert (folder.parent / "here" / "pushlane.db").is_file()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "no scheme"),
        ("./data", "no scheme"),
        ("sqlite", "no scheme"),
        ("sqlite:", "a folder comes after"),
        ("sqlite:a\0b", "a folder comes after"),
        ("memory:x", "nothing comes after"),
        ("postgres://host", "unknown scheme 'postgres'"),
        ("SQLITE:x", "unknown scheme 'SQLITE'"),
    ],
)
async def test_a_bad_url_says_what_is_known(url: str, reason: str) -> None:
    with pytest.raises(BadStoreUrl, match=reason) as bad:
        await open_store(url)
    assert "memory:, sqlite:DIR" in str(bad.value)
    assert bad.value.url == url
