"""`python -m tests.dispatcher.recording.planted PLANT serve …`: the server with a bug in it."""

from __future__ import annotations

import sys

import msgspec

from pushlane.cli import main
from pushlane_storage.packing import pack_settlement
from pushlane_storage.settlement import Settlement
from pushlane_storage.sqlite import shard_rows
from tests.crash.plants import PLANTS, put


def lost_acks() -> None:
    """Acks are confirmed, and not stored: after a restart their messages come again."""

    def pack(row: Settlement) -> bytes:
        return pack_settlement(msgspec.structs.replace(row, acked=[]))

    put(shard_rows, "pack_settlement", pack)


if __name__ == "__main__":
    {**PLANTS, "lost-acks": lost_acks}[sys.argv.pop(1)]()
    main()
