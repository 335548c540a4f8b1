"""The diagram of a message's life, out of its table. `--write` puts it into the docs.

python tools/life_diagram.py [--write [PAGE]]
"""

import re
import sys
from pathlib import Path

from pushlane_dispatcher.core.life import diagram

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
PLACE = re.compile(r"(?<=<!-- life:begin -->\n).*?(?=<!-- life:end -->)", re.DOTALL)


def main(args: list[str]) -> None:
    if not args or args[0] != "--write":
        print(diagram())
        return
    page = Path(args[1]) if len(args) > 1 else PAGE
    text, count = PLACE.subn(f"```mermaid\n{diagram()}\n```\n", page.read_text())
    assert count == 1, f"{page} has {count} places for the diagram"
    page.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
