"""A disk that fails while a folder is opened: it is said, and the folder is let go of."""

import errno
import sqlite3

import pytest

from pushlane_storage import files
from pushlane_storage.errors import FolderUnusable
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.slots import Slots
from tests.storage.sqlite.tools import Opened


def no_sync(*_: object) -> None:
    raise OSError(errno.EIO, "planted")


def no_read(*_: object) -> None:
    raise sqlite3.OperationalError("planted")


@pytest.mark.parametrize("made", [True, False])
async def test_a_folder_that_can_not_be_synced(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    if made:
        await (await opened()).close()
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_folder", no_sync)
        with pytest.raises(FolderUnusable, match="planted"):
            await opened()
    await (await opened()).catalog.create("t", "q", QueueConfig())


async def test_rows_that_can_not_be_read(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Slots, "load", no_read)
        with pytest.raises(FolderUnusable, match="planted"):
            await opened()
    await (await opened()).catalog.create("t", "q", QueueConfig())
