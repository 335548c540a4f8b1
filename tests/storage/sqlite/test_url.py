"""Store URLs."""

from pathlib import Path

import pytest

from pushlane_storage.errors import FolderLocked
from pushlane_storage.memory import MemoryStore
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import BadStoreUrl, open_store
from tests.held import held, let_go


async def test_memory() -> None:
    store = await held(open_store("memory:"))
    assert isinstance(store, MemoryStore)
    await let_go(store)


async def test_sqlite(folder: Path) -> None:
    store = await held(open_store(f"sqlite:{folder}"))
    assert isinstance(store, SqliteStore)
    assert (folder / "pushlane.db").is_file()
    with pytest.raises(FolderLocked):
        await held(open_store(f"sqlite:{folder}"))
    await let_go(store)


async def test_a_relative_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    store = await held(open_store("sqlite:./here"))
    await let_go(store)
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
        await held(open_store(url))
    assert "memory:, sqlite:DIR" in str(bad.value)
    assert bad.value.url == url
