"""Where values come from: a TOML file, the environment, flags. Each yields values by key.

A source knows how its own unknown names look, and names the nearest known one. It never shows a
value: what was meant for a misspelt key may be a secret.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.known import PREFIX, Key

MAX_FILE_BYTES = 1 << 20
"""A configuration file that is larger is none."""
CLIENT_VARIABLES = ("PUSHLANE_URL", "PUSHLANE_TOKEN")
"""What the client side goes by; often set in the same shell."""
CONFIG_VARIABLE = "PUSHLANE_CONFIG"
"""The path of the TOML file."""
FLAGS = {
    "listen": "listen",
    "data": "data",
    "store": "store",
    "leases": "leases",
    "roles": "roles",
    "insecure": "auth.insecure",
    "keys-file": "auth.keys_file",
    "tls-certificate": "tls.certificate",
    "tls-key": "tls.key",
    "log-level": "log.level",
    "log-format": "log.format",
}
"""Flags of `pushlane serve` that set a key; `--set KEY=VALUE` sets any."""

# A Kubernetes service of this name puts its address into the environment of every pod.
_KUBERNETES = re.compile(
    r"PUSHLANE_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


class Value(msgspec.Struct, frozen=True):
    """A value and where it stands. A `text` still has to be read as its key's type."""

    key: str
    value: Any
    where: str
    text: bool = False


Found = tuple[list[Value], list[str]]
"""Values, and faults."""


def from_file(path: Path, known: Mapping[str, Key]) -> Found:
    """The values of a TOML file. A file that can't be read at all is a `ConfigurationError`."""
    values: list[Value] = []
    faults: list[str] = []
    sections = {key.section for key in known.values()}
    sections |= {section.partition(".")[0] for section in sections}
    for name, value in _flat(_parse(path), sections):
        where = f"{path}: {name}"
        if name in known:
            values.append(Value(name, value, where))
        elif name in sections:
            faults.append(f"{where} is a section: write [{name}]")
        else:
            faults.append(f"{where}: no such key{nearest(name, [*known, *sections])}")
    return values, faults


def from_environment(environment: Mapping[str, str], known: Mapping[str, Key]) -> Found:
    """The values of all `PUSHLANE_…` variables that are meant for the server."""
    variables = {key.variable: key.name for key in known.values()}
    values: list[Value] = []
    faults: list[str] = []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in (*CLIENT_VARIABLES, CONFIG_VARIABLE):
            continue
        if variable in variables:
            values.append(Value(variables[variable], text, variable, text=True))
        elif not _KUBERNETES.fullmatch(variable):
            faults.append(
                f"environment: no such variable as {variable}{nearest(variable, variables)}"
            )
    return values, faults


def from_flags(flags: Mapping[str, Any]) -> list[Value]:
    """The values of flags, by their names in `FLAGS`; None: not given."""
    return [
        Value(FLAGS[flag], value, f"--{flag}", text=isinstance(value, str))
        for flag, value in flags.items()
        if value is not None
    ]


def from_settings(settings: Sequence[str], known: Mapping[str, Key]) -> Found:
    """The values of `--set KEY=VALUE`."""
    values: list[Value] = []
    faults: list[str] = []
    for number, setting in enumerate(settings, 1):
        name, equals, text = setting.partition("=")
        if not equals:
            faults.append(f"--set number {number} is not KEY=VALUE")
        elif name in known:
            values.append(Value(name, text, f"--set {name}", text=True))
        else:
            faults.append(f"--set {name}: no such key{nearest(name, known)}")
    return values, faults


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing when nothing is near."""
    others = {other.removeprefix(PREFIX): other for other in known}
    tail = name.rpartition(".")[2]
    found = [other for other in others if other.rpartition(".")[2] == tail]  # misplaced
    found = found or difflib.get_close_matches(name.removeprefix(PREFIX), others, 1, 0.6)
    return f"; did you mean {others[found[0]]}?" if found else ""


def _parse(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None


def _flat(
    table: Mapping[str, Any], sections: set[str], above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Dotted names. Only tables that are sections are looked into."""
    for step, value in table.items():
        name = f"{above}.{step}" if above else step
        if isinstance(value, dict) and name in sections:
            yield from _flat(value, sections, name)
        else:
            yield name, value
