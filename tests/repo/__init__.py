"""Tests of the repository itself: what is built, who imports whom, whether the docs are true."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
