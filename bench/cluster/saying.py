"""How figures are told."""

from __future__ import annotations


def say(name: str, figure: str, reached: bool, target: str) -> None:
    verdict = "reached" if reached else "NOT REACHED"
    print(f"  {name:56s} {figure:>12s}   {target}: {verdict}", flush=True)


def tell(name: str, figure: str) -> None:
    print(f"  {name:56s} {figure:>12s}", flush=True)
