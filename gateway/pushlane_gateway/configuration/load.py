"""One configuration out of all sources: file, then environment, then flags; the later one wins.

All faults are found in one go, and each says where it stands, what is there and what may be there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from pushlane_gateway.auth.secret import MASK, Secret
from pushlane_gateway.configuration.configuration import SQLITE, Configuration
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.known import DATA, Key, known_keys, section_type
from pushlane_gateway.configuration.sources import (
    CONFIG_VARIABLE,
    Value,
    from_environment,
    from_file,
    from_flags,
    from_settings,
)

DEFAULT_FILE = "pushlane.toml"
"""In the working folder; read when it is there."""

Sources = dict[str, str]
"""Where each key that was set was set, by its dotted name."""


def load(
    config: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """The configuration, or a `ConfigurationError` with all faults.

    `config` is the `--config` flag, `flags` others by their names in `FLAGS` (None: not given),
    `settings` the `KEY=VALUE` of `--set`.
    """
    return load_with_sources(config, flags, settings, environment)[0]


def load_with_sources(
    config: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[Configuration, Sources]:
    """`load`, and where each value came from."""
    environment = os.environ if environment is None else environment
    known = known_keys()
    layers, faults = [], []
    path = _find(config, environment)
    if path is not None:
        values, wrong = from_file(path, known)
        layers.append(values)
        faults += wrong
    values, wrong = from_environment(environment, known)
    layers.append(values)
    faults += wrong
    values, wrong = from_settings(settings, known)
    layers.append(from_flags(flags or {}) + values)
    faults += wrong
    return _build(layers, faults, known)


def _find(config: str | Path | None, environment: Mapping[str, str]) -> Path | None:
    named = config or environment.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).exists() else None


def _build(
    layers: list[list[Value]], faults: list[str], known: Mapping[str, Key]
) -> tuple[Configuration, Sources]:
    merged: dict[str, Any] = {}
    sources: Sources = {}
    for layer in layers:
        faults += _contradictions(layer)
        for found in layer:
            try:
                name, value = _target(found.key, _read(found, known[found.key]))
            except ValueError as error:
                faults.append(str(error))
                continue
            merged[name] = value
            sources[name] = found.where
    if faults:
        raise ConfigurationError(*faults)
    return _make(merged, sources), sources


def _contradictions(layer: list[Value]) -> list[str]:
    where = {found.key: found.where for found in layer}
    if DATA in where and "store" in where:
        return [
            f"{where[DATA]} and {where['store']} are both set: the first is short for the second"
        ]
    return []


def _target(name: str, value: Any) -> tuple[str, Any]:
    return ("store", SQLITE + value) if name == DATA else (name, value)


def _read(found: Value, key: Key) -> Any:
    """The value as its key's type; a ValueError says where, what and what instead."""
    value = found.value
    if found.text:
        value = _from_text(value, key)
    elif key.is_list and isinstance(value, str):
        value = [value]
    try:
        converted = msgspec.convert(value, key.type, dec_hook=_secret)
    except msgspec.ValidationError:
        raise _wrong(found, key) from None
    if key.type is int and not key.holds(converted):
        raise _wrong(found, key)
    if key.is_secret and any(secret.reveal() == MASK for secret in converted):
        raise ValueError(f"{found.where}: {MASK} only stands for a secret")
    return converted


def _wrong(found: Value, key: Key) -> ValueError:
    shown = MASK if key.is_secret else f"{found.value!r:.100}"
    return ValueError(f"{found.where} is {shown}: {key.expects}")


def _from_text(text: str, key: Key) -> Any:
    """What the environment or a flag says; what can't be read is left as it is."""
    if key.is_list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if key.type is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if key.type is int:
        try:
            return int(text, 0)
        except ValueError:
            return text
    return text


def _secret(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError


def _make(merged: Mapping[str, Any], sources: Sources) -> Configuration:
    """Sections first, the inner ones before the outer ones. What is wrong now concerns several."""
    tree: dict[str, Any] = {}
    for name, value in merged.items():
        *sections, field = name.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[field] = value
    return cast(Configuration, _struct("", tree, sources))


def _struct(section: str, tree: Mapping[str, Any], sources: Sources) -> msgspec.Struct:
    above = section + "." if section else ""
    fields = {
        name: _struct(above + name, value, sources) if isinstance(value, dict) else value
        for name, value in tree.items()
    }
    try:
        return section_type(section)(**fields)
    except ValueError as error:
        where = sorted({source for name, source in sources.items() if _inside(name, section)})
        raise ConfigurationError(
            f"{section or 'configuration'}: {error} ({', '.join(where)})"
        ) from None


def _inside(name: str, section: str) -> bool:
    return not section or name.startswith(section + ".")
