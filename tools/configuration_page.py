"""The tables of keys in docs/configuration.md, out of the code. `--write` puts them there.

python tools/configuration_page.py [--write [PAGE]]
"""

import re
import sys
from pathlib import Path

from pushlane_gateway.configuration.show import render

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
PLACE = re.compile(r"(?<=<!-- keys:begin -->\n).*?(?=<!-- keys:end -->)", re.DOTALL)


def main(args: list[str]) -> None:
    if not args or args[0] != "--write":
        print(render())
        return
    page = Path(args[1]) if len(args) > 1 else PAGE
    text, count = PLACE.subn(lambda _: f"\n{render()}\n", page.read_text())
    assert count == 1, f"{page} has {count} places for the tables"
    page.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
