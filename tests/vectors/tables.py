"""The vectors that are tables: frames, errors, backoff, receipts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from pushlane.core.link import backoff_ms
from pushlane.core.producer import RETRIED
from pushlane.core.settings import DEFAULTS
from pushlane.core.settle import expand
from pushlane.wire import CLOSES, CODES, JSON, frames
from pushlane.wire.receipts import compress
from tests.repo import ROOT

_CLIENT = tuple(frame.__struct_config__.tag for frame in get_args(frames.ClientFrame))


def _examples(page: Path) -> list[str]:
    """Every frame that the protocol's page shows."""
    blocks = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def frame_vectors() -> dict[str, Any]:
    """Frames as the page shows them, and as an encoder writes them: without what is default."""
    found = []
    for text in _examples(ROOT / "docs" / "protocol.md"):
        is_client = any(f'"op": "{op}"' in text for op in _CLIENT)
        decode = JSON.decode_client if is_client else JSON.decode_server
        encoded = JSON.encode(decode(text.encode()))
        side = "client" if is_client else "server"
        found.append({"from": side, "text": text, "encoded": encoded.decode()})
    return {"frames": found}


def error_vectors() -> dict[str, Any]:
    """What each code and close means, and what a client does about it."""
    errors = [
        {
            "code": info.code,
            "class": info.cls.__name__,
            "http_status": info.http_status,
            "close_code": info.close_code,
            "fault": info.fault,
            "outcome_unknown": info.outcome_unknown,
            "retry": info.retry,
            "repeated_by_client": info.code in RETRIED,
            "advice": info.advice,
        }
        for info in CODES.values()
    ]
    closes = [info._asdict() for info in CLOSES.values()]
    return {"errors": errors, "closes": closes}


def backoff_vectors() -> dict[str, Any]:
    """Delays before the n-th attempt, from 0."""
    pairs = (
        (DEFAULTS.backoff_base_ms, DEFAULTS.backoff_max_ms),
        (DEFAULTS.retry_base_ms, DEFAULTS.retry_max_ms),
        (1, 10**9),
    )
    rows = [
        {"base_ms": base, "max_ms": most, "attempt": attempt, "draw": draw,
         "delay_ms": backoff_ms(base, most, attempt, draw)}
        for base, most in pairs
        for attempt in (0, 1, 2, 3, 6, 7, 20, 1000)
        for draw in (0.0, 0.25, 0.5, 0.875)
    ]  # fmt: skip
    return {"backoff": rows}


def receipt_vectors() -> dict[str, Any]:
    """Numbers of one prefix, and the runs that name them."""
    sets = {
        "one": ("P", [5]),
        "a run": ("P", [1, 2, 3]),
        "gaps": ("kT9fWm3xQ2c", [1, 2, 4, 7, 8, 9]),
        "a prefix with dots and dashes": ("a.b-1.2", [3, 4]),
        "the longest run": ("P", list(range(1, 10_001))),
        "one more than the longest run": ("P", list(range(1, 10_002))),
        "large numbers": ("P", [2**53 - 2, 2**53 - 1]),
    }
    rows = []
    for name, (prefix, numbers) in sets.items():
        runs = compress(prefix, numbers)
        assert list(expand(runs)) == [f"{prefix}.{number}" for number in numbers]
        shown: dict[str, Any] = {"numbers": numbers}
        if len(numbers) > 100:
            shown = {"first": numbers[0], "last": numbers[-1]}
        rows.append({"name": name, "prefix": prefix, **shown, "runs": runs})
    bad = ["", "P", "P.", "P.0", "P.01", "P.1-", "P.3-2", "P.1-10001", ".1", "P 1.1", "P.1-2-3",
           "P.9007199254740992"]  # fmt: skip
    return {"runs": rows, "not_receipts": bad}
