"""Addresses of nodes, and which of them must not be opened without protection."""

from __future__ import annotations

import pytest

from pushlane_dispatcher.cluster.address import (
    is_loopback,
    join_address,
    split_address,
    unprotected,
)
from pushlane_dispatcher.cluster.settings import ClusterSettings


def test_addresses() -> None:
    for text, host, port in (
        ("10.0.0.5:8421", "10.0.0.5", 8421),
        ("[fd00::5]:8421", "fd00::5", 8421),
        ("node-a:0", "node-a", 0),
    ):
        assert split_address(text) == (host, port)
        assert join_address(host, port) == text


@pytest.mark.parametrize("text", ["", "x", ":80", "x:", "x:y", "::1:80", "x:65536", "x:٣", "x:-1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets|which host"):
        split_address(text)


def test_loopback() -> None:
    for address in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"):
        assert is_loopback(address)
    for address in ("0.0.0.0:1", "[::]:1", "10.0.0.5:1", "node-a:1", "localhost.example:1"):
        assert not is_loopback(address)


def test_what_needs_protection() -> None:
    assert unprotected("127.0.0.1:1", b"", tls=False) is None
    assert unprotected("10.0.0.5:1", b"x" * 16, tls=False) is None
    assert unprotected("10.0.0.5:1", b"", tls=True) is None
    assert "set a cluster key" in str(unprotected("10.0.0.5:1", b"", tls=False))
    assert "at least 16" in str(unprotected("127.0.0.1:1", b"short", tls=True))


def test_settings_that_cannot_work() -> None:
    with pytest.raises(ValueError, match="silence_ms"):
        ClusterSettings(silence_ms=1_500)
    with pytest.raises(ValueError, match="outbox_bytes"):
        ClusterSettings(outbox_bytes=1_000_000)
