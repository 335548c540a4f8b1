"""What users write, and where that is."""

from __future__ import annotations

import pytest

from pushlane.core.url import parse_url

URLS = [
    ("ws://127.0.0.1:8420", "ws://127.0.0.1:8420/v1/ws", "http://127.0.0.1:8420"),
    ("http://h/", "ws://h/v1/ws", "http://h"),
    ("wss://h", "wss://h/v1/ws", "https://h"),
    ("https://h:8443/v1/ws", "wss://h:8443/v1/ws", "https://h:8443"),
    ("https://h/queue/v1/ws/", "wss://h/queue/v1/ws", "https://h/queue"),
    ("ws://h:80/queue/", "ws://h/queue/v1/ws", "http://h/queue"),
    ("ws://[::1]:8420", "ws://[::1]:8420/v1/ws", "http://[::1]:8420"),
]


@pytest.mark.parametrize(("url", "ws", "http"), URLS)
def test_urls(url: str, ws: str, http: str) -> None:
    endpoint = parse_url(url)
    assert endpoint.ws_url == ws
    assert endpoint.http_url == http
    assert parse_url(endpoint.ws_url) == endpoint
    assert parse_url(endpoint.http_url) == endpoint


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("ws://127.0.0.1:8420", False),
        ("http://127.1.2.3/a", False),
        ("ws://localhost", False),
        ("ws://a.localhost:5", False),
        ("ws://[::1]:5", False),
        ("wss://example.org", False),
        ("ws://example.org", True),
        ("ws://127.0.0.1.example.org", True),
        ("ws://localhost.example.org:8420/a", True),
        ("http://10.0.0.1:8420", True),
        ("ws://[2001:db8::1]", True),
    ],
)
def test_whether_others_can_read_what_goes_there(url: str, readable: bool) -> None:
    assert parse_url(url).is_readable is readable
