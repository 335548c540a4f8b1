"""The picture of docs/metrics.md: the report of a sample store, as Chromium shows it.

    python -m tools.metrics_picture                     writes docs/images/metrics.png
    python -m tools.metrics_picture --keep FOLDER       keeps the store and the report there

`--messages` says how many messages the store holds: with millions it tells how fast the job is.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PIL import Image

from pushlane_spark.measuring.report import run
from pushlane_spark.session import open_session
from tools.sample_store import make_store, write_messages, write_usage

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "metrics.png"
UNTIL = datetime(2026, 6, 11, tzinfo=UTC)
PERIOD = timedelta(days=2)
WIDTH, HEIGHT = 1240, 1700
COLOURS = 64


def take_picture(page: Path, picture: Path, height: int = HEIGHT) -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium is not installed"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = [f"--screenshot={picture}", f"--window-size={WIDTH},{height}"]
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, *options, *size, f"--user-data-dir={profile}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(picture) as taken:
        few = taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = (options.keep or Path(made)).absolute()
        first, end = (int(at.timestamp()) // 60 for at in (UNTIL - PERIOD, UNTIL))
        if not (folder / "data").exists():
            make_store(folder / "data")
            write_usage(folder / "data", first, end)
            write_messages(folder / "data", options.messages, first, end)
        spark = open_session("metrics", master="local[2]")
        began = time.monotonic()
        store, out = f"sqlite:{folder / 'data'}", folder / "report"
        report = run(spark, store, since=UNTIL - PERIOD, until=UNTIL, out=out)
        print(f"{time.monotonic() - began:.1f} s, pages {', '.join(report.pages)}")
        take_picture(out / report.pages[0], PICTURE)
        print(f"{PICTURE} has {PICTURE.stat().st_size:,} bytes")
        spark.stop()


if __name__ == "__main__":
    main()
