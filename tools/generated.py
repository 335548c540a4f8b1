"""What the docs show out of the code: the keys of docs/configuration.md, a message's life.

python -m tools.generated keys|life [--write [PAGE]]

`--write` puts it into the page, between its marks.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from pushlane_dispatcher.core.life import diagram
from pushlane_gateway.configuration.show import render

DOCS = Path(__file__).parents[1] / "docs"
PARTS: dict[str, tuple[Path, Callable[[], str], str]] = {
    "keys": (DOCS / "configuration.md", render, "\n{}\n"),
    "life": (DOCS / "architecture.md", diagram, "```mermaid\n{}\n```\n"),
}
"""By the name of the marks: the page, the text, and how it stands there."""


def main(args: list[str]) -> None:
    name, *rest = args
    page, made, form = PARTS[name]
    if rest[:1] != ["--write"]:
        print(made())
        return
    page = Path(rest[1]) if len(rest) > 1 else page
    place = re.compile(rf"(?<=<!-- {name}:begin -->\n).*?(?=<!-- {name}:end -->)", re.DOTALL)
    text, count = place.subn(lambda _: form.format(made()), page.read_text())
    assert count == 1, f"{page} has {count} places for {name}"
    page.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
