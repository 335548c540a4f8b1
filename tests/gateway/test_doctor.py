"""`pushlane doctor`, the server's part."""

from __future__ import annotations

import os
import resource
from collections import namedtuple
from pathlib import Path

import pytest

from pushlane_gateway import doctor
from pushlane_gateway.doctor import check_descriptors, check_space, check_sync, checks
from pushlane_leases.url import Probe
from tests.gateway.auth.tools import make_token
from tools.services.ports import free_port
from tools.services.shared import Service


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def found(**arguments: str) -> dict[str, tuple[str, str]]:
    return {name: (status, text) for name, status, text in checks(**arguments)}


def test_before_the_first_start() -> None:
    rows = found()
    assert list(rows) == ["configuration", "store folder", "keys", "file descriptors"]
    assert "first start" in rows["store folder"][1]
    assert "nobody is asked" in rows["keys"][1]
    assert os.listdir() == [], "looking changes nothing"


def test_a_healthy_folder() -> None:
    make_token(Path("d", "keys.json"))
    before = set(os.listdir("d"))
    rows = found(data="d")
    assert rows["store folder"] == ("ok", str(Path("d").absolute()))
    assert rows["free disk"][0] == "ok"
    assert rows["fsync"][0] in ("ok", "warning")
    assert rows["keys"] == ("ok", "1 in d/keys.json")
    assert set(os.listdir("d")) == before, "nothing is left behind"


def test_a_bad_configuration_is_all_that_is_said() -> None:
    Path("c.toml").write_text("lissen = 1")
    rows = found(config="c.toml")
    assert list(rows) == ["configuration"]
    assert "did you mean listen" in rows["configuration"][1]


def test_a_store_in_memory_has_no_folder() -> None:
    Path("pushlane.toml").write_text('store = "memory:"')
    assert list(found()) == ["configuration", "file descriptors"]


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("d").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert found(data="d")["store folder"][0] == "failed"


def test_broken_keys() -> None:
    Path("pushlane-data").mkdir()
    Path("pushlane-data", "keys.json").write_text("{")
    assert found()["keys"][0] == "failed"


@pytest.mark.parametrize(
    ("free", "status"), [(99, "failed"), (100, "warning"), (399, "warning"), (400, "ok")]
)
def test_space(monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    Space = namedtuple("Space", "f_bavail f_frsize")
    monkeypatch.setattr(os, "statvfs", lambda _: Space(free, 1))
    assert check_space(Path(), 100)[1] == status


@pytest.mark.parametrize(("ms", "status"), [(19.0, "ok"), (21.0, "warning")])
def test_slow_syncs(monkeypatch: pytest.MonkeyPatch, ms: float, status: str) -> None:
    monkeypatch.setattr(doctor, "_sync_times", lambda _: [1.0, ms, 1000.0])
    assert check_sync(Path())[1] == status


def test_a_disk_that_cannot_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    assert check_sync(Path()) == ("fsync", "failed", ".: Input/output error")


@pytest.mark.parametrize(
    ("soft", "status"),
    [(1063, "warning"), (1064, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    name, found_status, text = check_descriptors(1_000)
    assert (name, found_status) == ("file descriptors", status)
    assert status == "ok" or "ulimit -n 1064" in text


def test_a_lease_cache_in_redis(redis_service: Service) -> None:
    Path("pushlane.toml").write_text(f'leases = "{redis_service.redis_url}"')
    status, text = found()["lease cache"]
    assert status == "ok"
    assert text.startswith(f"{redis_service.redis_url}, Redis ")


def test_a_lease_cache_that_is_not_there_is_no_failure() -> None:
    Path("pushlane.toml").write_text(f'leases = "redis://:secret@127.0.0.1:{free_port()}"')
    status, text = found()["lease cache"]
    assert status == "warning"
    assert "refused" in text
    assert text.endswith("the server continues without it")
    assert "secret" not in text


def test_a_lease_cache_that_could_do_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_leases", lambda _: Probe("redis://x", "it is too old"))
    assert found()["lease cache"] == ("warning", "redis://x: it is too old")


def test_a_lease_cache_that_nobody_knows() -> None:
    Path("pushlane.toml").write_text('leases = "mongo://x"')
    assert found()["lease cache"][0] == "failed"


def test_a_store_that_nobody_knows() -> None:
    Path("pushlane.toml").write_text('store = "mongo://x"')
    assert found()["store"][0] == "failed"


def test_a_replicated_store(cassandra_service: Service) -> None:
    url = cassandra_service.cassandra_url("looked_at").replace("//", "//user:secret@")
    Path("pushlane.toml").write_text(f'store = "{url}"\ncassandra.connect_ms = 60000')
    rows = found()
    assert list(rows) == [
        "configuration",
        "cassandra",
        "keyspace",
        "commit log",
        "file descriptors",
    ]
    assert rows["cassandra"][0] == "ok"
    assert "the next start brings it" in rows["keyspace"][1]
    assert rows["commit log"][0] == "warning", "one node, and it syncs every ten seconds"
    assert "secret" not in str(rows)


def test_a_replicated_store_that_is_not_there() -> None:
    Path("pushlane.toml").write_text(f'store = "cassandra://127.0.0.1:{free_port()}/k"')
    rows = found()
    assert rows["cassandra"][0] == "failed"
    assert "can't be reached" in rows["cassandra"][1]
