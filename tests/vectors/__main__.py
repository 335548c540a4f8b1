"""Writes the vectors again: the files of this folder, as they should be."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.vectors.scenarios import scenarios
from tests.vectors.tables import backoff_vectors, error_vectors, frame_vectors, receipt_vectors

FOLDER = Path(__file__).parent


def render() -> dict[str, str]:
    """Name → text of every file."""
    contents = {
        "frames.json": frame_vectors(),
        "errors.json": error_vectors(),
        "backoff.json": backoff_vectors(),
        "receipts.json": receipt_vectors(),
        "scenarios.json": scenarios(),
    }
    return {
        name: msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
        for name, value in contents.items()
    }


if __name__ == "__main__":
    for name, text in render().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {name}")
