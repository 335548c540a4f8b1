"""The `pushlane` command: its version, the commands it finds, and life without its extra."""

import sys
from importlib import metadata

import pytest

from pushlane import cli


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> object:
    """Run the command as the installed script does; returns what it hands to sys.exit."""
    monkeypatch.setattr(sys, "argv", ["pushlane", *args])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") in (None, 0)
    assert capsys.readouterr().out == f"pushlane {metadata.version('pushlane')}\n"


def test_help_lists_the_servers_commands_and_what_they_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") in (None, 0)
    assert "Run the server" in capsys.readouterr().out


def test_an_unknown_command_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "no-such-command") not in (None, 0)
    captured = capsys.readouterr()
    assert "no-such-command" in captured.out + captured.err


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cyclopts", None)  # makes the import fail as if not there
    assert "pip install 'pushlane[cli]'" in str(run(monkeypatch, "--version"))


def test_another_missing_module_is_not_mistaken_for_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = metadata.EntryPoint("broken", "no_such_module:command", cli.COMMANDS)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [broken])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        cli.main()
