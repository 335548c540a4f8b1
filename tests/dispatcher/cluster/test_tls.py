"""Links with TLS: both sides show a certificate of the cluster's authority."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trustme

from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable
from pushlane_dispatcher.cluster.links.dialling import dial
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.links.listening import Links, open_links
from pushlane_dispatcher.cluster.links.talk import HTTP_ANSWER
from pushlane_dispatcher.cluster.links.tls import LinkTls, load_tls
from pushlane_dispatcher.cluster.settings import ClusterSettings
from tests.dispatcher.cluster.rig import KEY, me, until

A, B = me("a"), me("b")
QUICK = ClusterSettings(handshake_ms=1_000, dial_ms=1_000, linger_ms=100)


class Authority:
    def __init__(self, folder: Path, name: str) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = str(folder / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def files(self, host: str) -> tuple[str, str]:
        issued = self._ca.issue_cert(host)
        certificate, key = self._folder / f"{host}.crt", self._folder / f"{host}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return str(certificate), str(key)

    def tls(self, host: str, *, check_names: bool = False) -> LinkTls:
        return load_tls(*self.files(host), self.file, check_names=check_names)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "cluster")


@asynccontextmanager
async def listening(
    tls: LinkTls | None, key: bytes = b"", settings: ClusterSettings = QUICK
) -> AsyncIterator[Links]:
    async def serve(link: Link) -> None:
        await link.run(lambda frame: link.send(b"back: " + frame))

    async with open_links(
        "127.0.0.1:0", serve, me=lambda: B, key=key, tls=tls, settings=settings
    ) as links:
        yield links


async def test_frames_there_and_back(authority: Authority) -> None:
    async with listening(authority.tls("node-b")) as links, trio.open_nursery() as nursery:
        link = await dial(links.address, lane="data", me=A, tls=authority.tls("node-a"))
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        for number in range(300):
            link.send(b"%d" % number * 100)
        await until(lambda: len(got) == 300)
        assert got == [b"back: " + b"%d" % number * 100 for number in range(300)]
        link.close("enough")
        await until(lambda: not links.counters.open)
        assert links.counters.ends == {"left": 1}


async def test_large_frames_both_ways(authority: Authority) -> None:
    frame = bytes(range(256)) * 16_384
    async with listening(authority.tls("node-b")) as links, trio.open_nursery() as nursery:
        link = await dial(links.address, lane="data", me=A, tls=authority.tls("node-a"))
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        for _ in range(3):
            link.send(frame)
        await until(lambda: len(got) == 3)
        assert set(got) == {b"back: " + frame}
        link.abort()


async def test_a_listener_of_another_authority(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    async with listening(other.tls("node-b")) as links:
        with pytest.raises(LinkRefused, match="certificate: its certificate: self-signed"):
            await dial(links.address, lane="data", me=A, tls=authority.tls("node-a"))
        await until(lambda: links.counters.refusals == {"lost": 1})


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_dialler_of_another_authority(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    stranger = Authority(tmp_path, "other").tls("node-a")
    stranger.client.load_verify_locations(authority.file)
    stranger.client.maximum_version = version
    async with listening(authority.tls("node-b")) as links:
        with pytest.raises((LinkRefused, LinkUnreachable)) as caught:
            await dial(links.address, lane="data", me=A, tls=stranger)
        assert caught.value.code.value in ("certificate", "lost")
        await until(lambda: links.counters.refusals == {"certificate": 1})
        assert links.counters.opened == 0


async def test_a_dialler_without_a_certificate(authority: Authority) -> None:
    bare = ssl.create_default_context(cafile=authority.file)
    bare.check_hostname = False
    async with listening(authority.tls("node-b")) as links:
        tls = LinkTls(authority.tls("node-a").server, bare)
        with pytest.raises((LinkRefused, LinkUnreachable)):
            await dial(links.address, lane="data", me=A, tls=tls)
        await until(lambda: links.counters.refusals == {"certificate": 1})


async def test_names_are_checked_where_that_is_wanted(authority: Authority) -> None:
    checking = authority.tls("node-a", check_names=True)
    async with listening(authority.tls("node-b")) as links:
        with pytest.raises(LinkRefused, match="IP address mismatch"):
            await dial(links.address, lane="data", me=A, tls=checking)
    async with listening(authority.tls("127.0.0.1")) as links:
        link = await dial(links.address, lane="data", me=A, tls=checking)
        link.abort()
        await link.run(lambda _: None)


async def test_a_key_counts_with_tls_too(authority: Authority) -> None:
    async with listening(authority.tls("node-b"), KEY) as links:
        with pytest.raises(LinkRefused, match="wrong_key"):
            await dial(links.address, lane="data", me=A, tls=authority.tls("node-a"))


async def test_one_with_tls_and_one_without(authority: Authority) -> None:
    async with listening(authority.tls("node-b"), KEY) as links:
        with pytest.raises((LinkRefused, LinkUnreachable)) as caught:
            await dial(links.address, lane="data", me=A, key=KEY)
        assert caught.value.code.value in ("not_a_link", "lost")
        await until(lambda: links.counters.refusals == {"certificate": 1})
    async with listening(None, KEY) as links:
        with pytest.raises(LinkUnreachable, match="lost"):
            await dial(links.address, lane="data", me=A, key=KEY, tls=authority.tls("node-a"))
        await until(lambda: links.counters.refusals == {"not_a_link": 1})


async def test_http_without_tls_gets_an_answer(authority: Authority) -> None:
    async with listening(authority.tls("node-b")) as links:
        host, port = links.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"".join([bytes(part) async for part in stream]) == HTTP_ANSWER
        await stream.aclose()


async def test_busy_cannot_be_said(authority: Authority) -> None:
    full = msgspec.structs.replace(QUICK, links=0)
    async with listening(authority.tls("node-b"), settings=full) as links:
        with pytest.raises(LinkUnreachable, match="lost"):
            await dial(links.address, lane="data", me=A, tls=authority.tls("node-a"))
        assert links.counters.refusals == {"busy": 1}


async def test_a_half_open_handshake_ends(authority: Authority) -> None:
    async with listening(authority.tls("node-b")) as links:
        host, port = links.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await until(lambda: links.counters.refusals == {"timed_out": 1})
        await stream.aclose()


async def test_a_listener_that_says_nothing(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        tls = authority.tls("node-a")
        with pytest.raises(LinkUnreachable, match="timed_out"):
            await dial(address, lane="data", me=A, tls=tls, settings=QUICK)


def test_old_versions_and_bad_files(authority: Authority, tmp_path: Path) -> None:
    tls = authority.tls("node-a")
    for context in tls:
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert not [one["name"] for one in context.get_ciphers() if "CBC" in one["description"]]
    certificate, key = authority.files("node-b")
    with pytest.raises(OSError, match="No such file"):
        load_tls(certificate, str(tmp_path / "none"), authority.file)
    with pytest.raises(OSError, match=r"PEM|NO_START_LINE|no start line"):
        load_tls(key, key, authority.file)
