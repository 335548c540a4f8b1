"""Build the packages that people install: `make package`.

    python -m tools.package [--out DIR]

Wheels and sdists of both Python distributions and the tarball for npm, from this checkout. What
they are built with is installed already: nothing is fetched.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
UV = Path(sys.prefix, "bin", "uv")

KINDS = {
    "pushlane-{}-py3-none-any.whl": "the Python SDK and the command line",
    "pushlane_server-{}-py3-none-any.whl": "the server",
    "pushlane-{}.tgz": "the JavaScript SDK, for npm",
    "pushlane-{}.tar.gz": "source of the Python SDK",
    "pushlane_server-{}.tar.gz": "source of the server",
}
"""Everything that is made, by what its file is called."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build wheels, sdists and the npm package.")
    parser.add_argument("--out", type=Path, default=DIST, help="the folder; dist unless given")
    out = parser.parse_args(arguments).out.absolute()
    remove_older(out)
    build_python(out)
    build_npm(out)
    print("\n".join(describe(out)))


def remove_older(out: Path) -> None:
    """Packages of whatever version; a folder may have other files, too."""
    for name in KINDS:
        for path in out.glob(name.format("[0-9]*")):
            path.unlink()


def build_python(out: Path) -> None:
    """An sdist of each distribution, and the wheel that is built from it."""
    options = ["--quiet", "--offline", "--no-build-isolation", "--no-create-gitignore"]
    for source in (ROOT / "sdk_py", ROOT):
        run(UV, "build", *options, f"--python={sys.executable}", f"--out-dir={out}", source)


def build_npm(out: Path) -> None:
    """Of what `make` has built in sdk_js/dist."""
    options = ["--silent", "--ignore-scripts", f"--pack-destination={out}"]
    run("npm", "pack", *options, cwd=ROOT / "sdk_js")


def describe(out: Path) -> list[str]:
    """A line for each file: where it is, how big, and what for."""
    here = Path.cwd()
    shown = out.relative_to(here) if out.is_relative_to(here) else out
    lines = []
    for name, what in KINDS.items():
        file = name.format(version())
        size = (out / file).stat().st_size / 1000
        lines.append((str(shown / file), f"{size:5.0f} kB", what))
    width = max(len(path) for path, _, _ in lines)
    return [f"{path:{width}}  {size}  {what}" for path, size, what in lines]


def version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"package: {' '.join(map(str, command))} failed:\n{done.stdout}")


def _environment() -> dict[str, str]:
    """With the cache that `make` filled."""
    return os.environ | {"UV_CACHE_DIR": str(Path(sys.prefix, "uv-cache"))}


if __name__ == "__main__":
    main()
