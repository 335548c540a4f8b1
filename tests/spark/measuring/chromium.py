"""A page in a real browser: what it loaded, and how large its pictures came out."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SECONDS = 120
_LOOK = """
<pre id=seen></pre>
<script>
addEventListener("load", () => {
  const pictures = [...document.images].map(one => [one.alt, one.naturalWidth, one.clientWidth]);
  const loaded = performance.getEntriesByType("resource").map(one => one.name)
    .filter(name => !name.startsWith("data:"));
  const heads = [...document.querySelectorAll("h1, h2, h3")].map(one => one.textContent);
  const wide = document.documentElement.scrollWidth > innerWidth;
  seen.textContent = JSON.stringify({pictures, loaded, heads, wide});
});
</script>
"""
_POLICY = re.compile("<meta http-equiv=[^>]*>")


class Seen(NamedTuple):
    pictures: list[tuple[str, int, int]]
    """Title, natural width, and the width that it has on the page."""
    loaded: list[str]
    """Whatever was asked for."""
    heads: list[str]
    wide: bool
    """Whether one must scroll sideways."""


def look_at_page(page: Path, folder: Path) -> Seen:
    """Open a copy that tells what is seen. Its policy, which allows no script, is taken out."""
    text, changes = _POLICY.subn("", page.read_text())
    assert changes == 1
    copy = folder / "copy.html"
    copy.write_text(text.replace("</body>", f"{_LOOK}</body>"))
    found = re.search("<pre id=[^>]*>(.*)</pre>", dump(copy, folder))
    assert found is not None
    seen = json.loads(html.unescape(found[1]))
    return Seen([tuple(one) for one in seen["pictures"]], *list(seen.values())[1:])


def dump(page: Path, folder: Path) -> str:
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium is not installed"
    profile = f"--user-data-dir={folder / 'profile'}"
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,2000", *quiet]
    done = subprocess.run(
        [chromium, *options, profile, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout
