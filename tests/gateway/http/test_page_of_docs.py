"""Every exchange in docs/http.md happens as it says."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tests.gateway.http.rig import rig
from tests.repo import ROOT

BLOCK = re.compile(
    r"^```http\n(?P<method>[A-Z]+) (?P<target>\S+)\n(?P<body>\{.*\}\n)?\n"
    r"(?P<status>\d+) (?P<answer>\{.*\})\n```$",
    re.MULTILINE,
)
PAGE = (ROOT / "docs" / "http.md").read_text()


def check(shown: Any, found: Any) -> None:
    """What the page shows is there; it may leave fields of objects out."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            check(value, found[name])
    elif isinstance(shown, list):
        assert len(shown) == len(found)
        for one, other in zip(shown, found, strict=True):
            check(one, other)
    elif shown in ("…", "RECEIPT", "PIPE"):
        assert isinstance(found, str)
    elif isinstance(shown, int) and shown > 1_000_000:
        assert isinstance(found, int)  # times and fences
    else:
        assert found == shown


async def test_every_exchange() -> None:
    exchanges = list(BLOCK.finditer(PAGE))
    assert len(exchanges) == PAGE.count("```http") == 16
    receipt = pipe = ""
    async with rig() as r:
        for exchange in exchanges:
            body = exchange["body"]
            sent = None if body is None else _fill(body, RECEIPT=receipt, PIPE=pipe)
            answer = await r.ask(exchange["method"], exchange["target"], sent)
            assert answer.status == int(exchange["status"]), (exchange[0], answer)
            shown = msgspec.json.decode(exchange["answer"])
            check(shown, answer.json)
            if shown == {}:
                assert answer.json == {}
            if exchange["target"].endswith("/receive"):
                receipt = answer.json["messages"][0]["receipt"]
            pipe = answer.json.get("pipe", pipe)


def _fill(body: str, **words: str) -> bytes:
    for name, word in words.items():
        body = body.replace(f'"{name}"', f'"{word}"')
    return body.encode()
