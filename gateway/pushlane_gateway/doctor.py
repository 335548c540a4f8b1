"""What `pushlane doctor` checks on the server's own machine.

`checks` is an entry point of the group `pushlane.checks`. It yields tuples (name, status, what was
found), status being `ok`, `warning` or `failed`, and works beside a server that is running.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from pushlane_dispatcher.node import (
    BadLeaseUrl,
    BadStoreUrl,
    LeaseCacheError,
    StoreLimits,
    probe_leases,
    probe_store,
    shown,
)
from pushlane_gateway.auth.key_file import BrokenKeyFile, read_keys
from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.load import load

Row = tuple[str, str, str]

SYNCS = 20
SLOW_SYNC_MS = 20.0
"""An fsync that takes longer makes every publish slow: it is answered after one."""
SPARE_DESCRIPTORS = 64
"""What the server needs besides connections: files, listeners, pipes."""
MIB = 1 << 20


def checks(config: str | None = None, data: str | None = None) -> Iterator[Row]:
    """Configuration, store, disk, lease cache, keys, file descriptors."""
    try:
        configuration = load(config, {"data": data})
    except ConfigurationError as error:
        yield "configuration", "failed", str(error)
        return
    yield "configuration", "ok", f"store {shown(configuration.store)}"
    folder = configuration.folder
    if folder is not None:
        yield from check_folder(folder, configuration.sqlite.reserve_bytes)
    yield from check_store(configuration)
    yield from check_leases(configuration.leases)
    yield from check_keys(configuration)
    yield check_descriptors(configuration.gateway.connections)


def check_folder(folder: Path, reserve: int) -> Iterator[Row]:
    if not folder.is_dir():
        yield "store folder", "ok", f"{folder} is not there yet: the first start makes it"
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield "store folder", "failed", f"{folder} can't be written by this user"
        return
    yield "store folder", "ok", str(folder.absolute())
    yield check_space(folder, reserve)
    yield check_sync(folder)


def check_space(folder: Path, reserve: int) -> Row:
    """Below the reserve, publishes are refused."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    text = f"{free // MIB} MiB free; below {reserve // MIB} MiB publishes are refused"
    if free < reserve:
        return "free disk", "failed", f"{text}: make room"
    return "free disk", "warning" if free < 4 * reserve else "ok", text


def check_sync(folder: Path) -> Row:
    """How long an fsync takes here: a small file is written and removed again."""
    try:
        middle = median(_sync_times(folder))
    except OSError as error:
        return "fsync", "failed", f"{folder}: {error.strerror or error}"
    text = f"{middle:.2f} ms in the middle of {SYNCS}"
    if middle > SLOW_SYNC_MS:
        return "fsync", "warning", f"{text}: every publish waits for one, take a faster disk"
    return "fsync", "ok", text


def _sync_times(folder: Path) -> list[float]:
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return times


def check_store(configuration: Configuration) -> Iterator[Row]:
    """A store that others serve: whether it is there, and as safe as it could be."""
    limits = StoreLimits(configuration.sqlite, configuration.cassandra)
    try:
        yield from probe_store(configuration.store, limits)
    except BadStoreUrl as error:
        yield "store", "failed", str(error)


def check_leases(url: str) -> Iterator[Row]:
    """Without it the server goes on: nothing here is a failure but a URL that is wrong."""
    try:
        found = probe_leases(url)
    except BadLeaseUrl as error:
        yield "lease cache", "failed", str(error)
    except LeaseCacheError as error:
        reason = str(error).rstrip(".")
        yield "lease cache", "warning", f"{reason}: the server continues without it"
    else:
        if found is not None:
            status = "ok" if found.fault is None else "warning"
            yield "lease cache", status, ": ".join(filter(None, found))


def check_keys(configuration: Configuration) -> Iterator[Row]:
    path = configuration.keys_file
    if path is None:
        return
    try:
        found = read_keys(path)
    except BrokenKeyFile as error:
        yield "keys", "failed", str(error)
        return
    if found is None:
        yield "keys", "ok", "none: nobody is asked for one, and only this machine may connect"
    else:
        yield "keys", "ok", f"{len(found[0])} in {path}"


def check_descriptors(connections: int) -> Row:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return "file descriptors", "ok", f"{soft} allowed"
    advice = f"raise it (ulimit -n {needed}) or lower gateway.connections"
    text = f"{soft} allowed (at most {hard}), {connections} connections may need {needed}"
    return "file descriptors", "warning", f"{text}: {advice}"
