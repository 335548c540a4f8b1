"""TLS: the same connections, and certificates that are replaced while the server runs."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pushlane_gateway.listener.certificates import Certificates
from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.listener.tls_link import HANDSHAKE_BYTES, TlsLink
from pushlane_gateway.settings import GatewaySettings
from tests.gateway.listener.rig import (
    BINARY,
    TEXT,
    Client,
    Ends,
    close,
    frame,
    get,
    listening,
    until,
    upgrade,
)

QUICK = GatewaySettings(certificate_check_ms=1)


class Files:
    """Certificate and key files, and a client's context that trusts them."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.certificate = folder / "cert.pem"
        self.key = folder / "key.pem"
        self.trust = ssl.create_default_context()
        self.authority.configure_trust(self.trust)
        self.renew()

    def renew(self) -> None:
        issued = self.authority.issue_cert("localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for path, data in ((self.key, issued.private_key_pem.bytes()), (self.certificate, chain)):
            new = path.with_suffix(".new")
            new.write_bytes(data)
            os.replace(new, path)

    def open(self, counters: Counters | None = None) -> Certificates:
        return Certificates(str(self.certificate), str(self.key), QUICK, counters)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def serial(client: Client) -> object:
    stream = client.stream
    assert isinstance(stream, trio.SSLStream)
    await stream.do_handshake()
    return stream.getpeercert()["serialNumber"]


async def test_http_and_websocket_over_tls(files: Files) -> None:
    async with listening(certificates=files.open()) as rig:
        client = await rig.connect_tls(files.trust)
        await client.send(get("/hello"))
        assert (await client.answer()).body == b"hello you"
        await client.send(upgrade())
        assert (await client.answer()).status == 101
        await client.send(frame(TEXT, b"a" * 3_000_000))
        assert await client.frame() == (TEXT, b"a" * 3_000_000)
        await client.send(close(1000))
        assert await client.closed_with() == (1000, "")


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_heard(files: Files) -> None:
    async with listening(certificates=files.open()) as rig:
        stream = await trio.open_tcp_stream("127.0.0.1", rig.port)
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = files.trust.wrap_bio(heard, said, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await stream.send_all(said.read())
                heard.write(await stream.receive_some())
        tls.write(get("/hello"))
        await stream.send_all(said.read())
        answer = b""
        with trio.fail_after(60):
            while b"hello you" not in answer:
                heard.write(await stream.receive_some())
                with suppress(ssl.SSLWantReadError):
                    answer += tls.read()
        await stream.aclose()


async def test_a_slow_reader_over_tls_gets_all(files: Files) -> None:
    ends = Ends()
    async with listening(certificates=files.open(), handle=ends.handle) as rig:
        client = await rig.connect_tls(files.trust)
        await client.send(upgrade())
        assert (await client.answer()).status == 101
        await trio.testing.wait_all_tasks_blocked()
        socket = ends.sockets[0]
        for number in range(300):
            socket.send(b"%06d" % number * 10_000)
        await trio.sleep(0.1)
        assert socket.outbox_bytes > 1_000_000
        socket.close(1001, "drain")
        for number in range(300):
            assert await client.frame() == (TEXT, b"%06d" % number * 10_000)
        assert (await client.frame())[1][2:] == b"drain"


async def test_a_fault_of_a_slow_reader_over_tls_cuts_nothing_off(files: Files) -> None:
    ends = Ends()
    async with listening(certificates=files.open(), handle=ends.handle) as rig:
        client = await rig.connect_tls(files.trust)
        await client.send(upgrade())
        assert (await client.answer()).status == 101
        await trio.testing.wait_all_tasks_blocked()
        for number in range(100):
            ends.sockets[0].send(b"%06d" % number * 10_000)
        await trio.sleep(0.05)
        await client.send(frame(BINARY, b"wrong"))
        for number in range(100):
            assert await client.frame() == (TEXT, b"%06d" % number * 10_000)
            await trio.sleep(0.001)
        assert b"text frames only" in (await client.frame())[1]
        assert await client.closed_with() == (1003, "bad_request")


async def test_no_more_is_encrypted_than_can_be_sent_and_nothing_stays_behind(
    files: Files,
) -> None:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    body = b"0123456789" * 500_000
    client = trio.SSLStream(
        trio.SocketStream(trio.socket.from_stdlib_socket(other)),
        files.trust,
        server_hostname="localhost",
    )
    with ours, other:
        async with trio.open_nursery() as nursery:
            link = TlsLink(ours, "test", files.open().context())
            nursery.start_soon(client.do_handshake)
            await link.handshake(20_000)
        written = link.write_now(body)
        assert 0 < written < 1_000_000
        assert link.unsent
        assert link.write_now(body) == 0
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.send_all, body[written:], 20_000)
            with trio.fail_after(60):
                while len(got) < len(body):
                    got += await client.receive_some()
        assert got == body
        assert not link.unsent


async def test_what_is_no_tls_is_no_connection(files: Files) -> None:
    async with listening(certificates=files.open()) as rig:
        client = await rig.connect()
        await client.send(b"\0rubbish\r\n\r\n")
        await rig.settle()
        assert rig.counters.tls_failures == 1
        silent = await rig.connect()
        await silent.aclose()
        await rig.settle()


async def test_http_without_tls_is_told_so_in_plain(files: Files) -> None:
    async with listening(certificates=files.open()) as rig:
        client = await rig.connect()
        await client.send(get("/hello"))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "bad_request")
        assert "wss:// or https://" in answer.error["message"]
        await client.eof()
        assert rig.counters.tls_failures == 1


async def test_a_half_open_tls_handshake_ends(files: Files) -> None:
    async with listening(certificates=files.open(), head_ms=60) as rig:
        client = await rig.connect()
        await client.send(b"\x16\x03\x01")
        await client.eof()
        assert rig.counters.late_heads == 1


async def test_new_files_are_used_and_old_connections_stay(files: Files) -> None:
    async with listening(certificates=files.open()) as rig:
        old = await rig.connect_tls(files.trust)
        before = await serial(old)
        files.renew()
        await trio.sleep(0.01)
        assert await serial(await rig.connect_tls(files.trust)) != before
        await old.send(get("/hello"))
        assert (await old.answer()).status == 200


@pytest.mark.parametrize("broken", ["rubbish", "other key", "gone"])
async def test_broken_files_change_nothing_and_are_logged_once(
    broken: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters()
    async with listening(certificates=files.open(counters)) as rig:
        before = await serial(await rig.connect_tls(files.trust))
        if broken == "rubbish":
            files.certificate.write_text("-----BEGIN CERTIFICATE-----\nhalf of")
        elif broken == "other key":
            files.key.write_bytes(files.authority.issue_cert("x").private_key_pem.bytes())
        else:
            files.certificate.unlink()
        for _ in range(3):
            await trio.sleep(0.01)
            assert await serial(await rig.connect_tls(files.trust)) == before
        assert counters.certificate_failures == 1
        assert caplog.text.count("not reloaded") == 1
        files.renew()
        await trio.sleep(0.01)
        assert await serial(await rig.connect_tls(files.trust)) != before


def test_an_encrypted_key_is_an_error_and_asks_nobody(files: Files) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    lock = BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    with pytest.raises(ValueError, match="without a passphrase"):
        files.open()


def test_files_that_are_broken_from_the_start_are_an_error(files: Files) -> None:
    files.certificate.write_text("no certificate")
    with pytest.raises(ssl.SSLError):
        files.open()
    files.certificate.unlink()
    with pytest.raises(FileNotFoundError):
        files.open()


def test_tls_1_2_has_no_cbc(files: Files) -> None:
    suites = files.open()._context.get_ciphers()
    old = [suite["name"] for suite in suites if suite["protocol"] != "TLSv1.3"]
    assert old
    assert all(("GCM" in name or "CHACHA20" in name) and "ECDHE" in name for name in old)


@pytest.mark.parametrize(
    ("ciphers", "served"), [("ECDHE+AESGCM", True), ("ECDHE+AES:!AESGCM:!AESCCM", False)]
)
async def test_a_client_of_tls_1_2(files: Files, ciphers: str, served: bool) -> None:
    files.trust.maximum_version = ssl.TLSVersion.TLSv1_2
    files.trust.set_ciphers(ciphers)
    async with listening(certificates=files.open()) as rig:
        client = await rig.connect_tls(files.trust)
        if served:
            await client.send(get("/hello"))
            assert (await client.answer()).body == b"hello you"
        else:
            with pytest.raises(trio.BrokenResourceError):
                await client.send(get("/hello"))
            await until(lambda: rig.counters.tls_failures == 1)


ANNOUNCED = bytes.fromhex("16 03 01 00 08 01 01 ff b8 03 03 00 00")
"""The first bytes of a greeting of 131,000 bytes."""


async def test_handshakes_that_are_not_complete_have_a_budget(files: Files) -> None:
    """Thirteen bytes make OpenSSL keep room for all that they announce."""
    certificates = files.open()
    async with listening(certificates=certificates, unauthenticated_total_bytes=400_000) as rig:
        budget = rig.listener.budget
        streams = []
        for _ in range(2):
            streams.append(await trio.open_tcp_stream("127.0.0.1", rig.port))
            await streams[-1].send_all(ANNOUNCED)
        await until(lambda: budget.held == 2 * HANDSHAKE_BYTES)
        client = await rig.connect_tls(files.trust)
        await client.send(get("/hello"))
        assert (await client.answer()).body == b"hello you"
        assert (budget.held, rig.counters.overloads) == (2 * HANDSHAKE_BYTES, 0)
        streams.append(await trio.open_tcp_stream("127.0.0.1", rig.port))
        await streams[-1].send_all(ANNOUNCED)
        await until(lambda: rig.counters.overloads == 1)
        assert budget.held == 2 * HANDSHAKE_BYTES
        for stream in streams:
            await stream.aclose()
        await until(lambda: budget.held == 0)
