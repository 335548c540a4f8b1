"""Writes the vectors anew."""

from __future__ import annotations

from tests.vectors.files import FOLDER, render

for name, text in render().items():
    (FOLDER / name).write_text(text)
    print(f"wrote {name}")
