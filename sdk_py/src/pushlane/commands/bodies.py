"""Where bodies come from: a word on the command line, or lines of stdin.

A word is JSON where it is JSON, else a string. The JSON is carried as it was written, byte for
byte. `true`, `17` and `"a"` are JSON; `hello` is not and becomes the string. Use `--text` where a
string that looks like JSON is meant.

Lines come as they come, without keeping the event loop from its work. A thread reads, because a
file can't be awaited; it ends with the process when nothing more comes. It reads the descriptor
itself: a thread that waits inside Python's own stdin holds a lock without which the interpreter
can't end. What has come is handed over together, so that a fast input makes large batches and a
slow one is not kept waiting.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Raw

from pushlane.wire.body import MAX_DEPTH, too_deep
from pushlane.wire.errors import BadRequest

_JSON = msgspec.json.Decoder(Raw)


def read_body(text: str, *, is_text: bool = False) -> Raw | str:
    """A body for `publish`. What is not UTF-8, or JSON nested beyond reason, is a `BadRequest`."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise BadRequest("a BODY is not UTF-8") from None
    if is_text:
        return text
    try:
        return Raw(bytes(_JSON.decode(raw)))
    except msgspec.DecodeError:
        return text
    except RecursionError:
        raise too_deep(MAX_DEPTH) from None


BATCH = 1_000
"""Lines handed over at once, and lines that wait: the reader stops meanwhile."""
LINE_BYTES = 64 << 20
"""More than any message may have: of a longer line only this much is kept, and that is refused."""
READ_BYTES = 64 << 10

STDIN = 0


async def read_batches(descriptor: int = STDIN) -> AsyncIterator[list[bytes]]:
    """Lists of lines, without their ends. Empty lines are left out."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(BATCH)

    def put(item: bytes | OSError | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(lines.put_nowait, item)

    def read() -> None:
        with suppress(RuntimeError):  # the loop is closed: the command was interrupted
            try:
                for line in split_lines(descriptor):
                    put(line)
                put(None)
            except OSError as error:
                put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        batch = [await lines.get()]
        while not lines.empty() and len(batch) < BATCH:
            batch.append(lines.get_nowait())
        room.release(len(batch))
        end = batch.pop() if not isinstance(batch[-1], bytes) else b""
        if batch:
            yield cast("list[bytes]", batch)
        if end is None:
            return
        if isinstance(end, OSError):
            raise BadRequest(f"stdin can't be read: {end.strerror}")


def split_lines(descriptor: int) -> Iterator[bytes]:
    """The lines of a file or pipe that have something in them; also the last one without an end."""
    rest = bytearray()
    while chunk := os.read(descriptor, READ_BYTES):
        *ends, last = chunk.split(b"\n")
        for end in ends:
            line = (bytes(rest) + end).rstrip(b"\r")[:LINE_BYTES]
            rest.clear()
            if line.strip():
                yield line
        rest += last
        del rest[LINE_BYTES:]
    if rest.strip():
        yield bytes(rest).rstrip(b"\r")
