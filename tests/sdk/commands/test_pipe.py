"""Output that nobody reads any more ends a command without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pushlane.commands.pipe import forget_output, nobody_reads
from tests.gateway.process import environment

PUSHLANE = Path(sys.prefix, "bin", "pushlane")


def piped(folder: Path, *args: str) -> tuple[int, str]:
    """Run a command whose output has no reader; its exit code and what it said on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [PUSHLANE, *args],
            stdout=writer,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment(),
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "args", [["token", "list", "--json"], ["serve", "--print-config"]], ids=" ".join
)
def test_a_command_says_nothing_of_it(tmp_path: Path, args: list[str]) -> None:
    assert piped(tmp_path, *args) == (0, "")


def test_its_own_fault_is_still_told(tmp_path: Path) -> None:
    code, said = piped(tmp_path, "publish", "orders")
    assert (code, said.startswith("pushlane: nothing to publish")) == (2, True)


def test_who_reads_and_who_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert not nobody_reads()
        os.close(reader)
        assert nobody_reads()
        output.write("x")
        forget_output()  # else closing the file would raise BrokenPipeError
        assert not nobody_reads()


def test_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not nobody_reads()
    forget_output()
