"""`pushlane token create|list|revoke`: the API keys of a server, in its file of keys.

The file is changed directly, so it works before the server runs and when nobody has a key any
more; a running server follows within seconds. Who may write the file may do everything anyway.

The key alone goes to stdout, so that a script can take it; what people should know goes to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from pushlane_gateway.auth.key import ApiKey

_HEAD = ("ID", "NAME", "TENANT", "MAY", "CREATED", "EXPIRES")

app = App(name="token", help="Make, list and revoke API keys.")

Allow = Annotated[
    list[str],
    Parameter(
        name="--allow",
        negative="",
        help="A right, ACTION:PATTERN; may be given several times. Actions are publish, consume, "
        "manage and admin (all three); a pattern is a queue's name, its beginning with a star, or "
        "a star. operate:* is for whoever runs the server: metrics, bills.",
    ),
]
Json = Annotated[
    bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON.")
]
Config = Annotated[str | None, Parameter(name="--config", help="The server's pushlane.toml.")]
Data = Annotated[str | None, Parameter(name="--data", help="The server's data folder.")]
KeysFile = Annotated[str | None, Parameter(name="--keys-file", help="The file of keys itself.")]


@app.command
def create(
    name: str,
    /,
    *,
    allow: Allow,
    tenant: str = "default",
    expires_in: str | None = None,
    json: Json = False,
    config: Config = None,
    data: Data = None,
    keys_file: KeysFile = None,
) -> None:
    """Make a key. It is shown this once: the server keeps only its hash.

    pushlane token create shop --allow 'publish:orders*' --expires-in 90d

    Once there is a key, everybody needs one. Clients take it from PUSHLANE_TOKEN.

    Parameters
    ----------
    name
        What the key is for; shown in lists and logs.
    tenant
        The tenant whose queues it can use.
    expires_in
        How long it is valid: 90d, 12h, 30m. Default: for ever.
    """
    with _faults():
        from pushlane.wire.duration import parse_duration
        from pushlane.wire.names import check_tenant_name
        from pushlane_gateway.auth.authenticator import wall_clock
        from pushlane_gateway.auth.key import make_key
        from pushlane_gateway.auth.key_file import add_key
        from pushlane_gateway.auth.rule import parse_rules

        path = _keys_file(config, data, keys_file)
        now = wall_clock()
        key, secret = make_key(
            name=name,
            tenant=check_tenant_name(tenant),
            rules=parse_rules(allow),
            now=now,
            expires_at=now + parse_duration(expires_in) if expires_in else None,
        )
        first = not path.exists()
        add_key(path, key)
        if json:
            _print_json({**_public(key), "token": secret.reveal()})
        else:
            print(secret.reveal())
            _note(f"key {key.id} may {_rules(key)}; keep it, it is not shown again")
        if first:
            _note(f"it is the first one in {path}: from now on the server asks everybody for a key")


@app.command(name="list")
def list_keys(
    *, json: Json = False, config: Config = None, data: Data = None, keys_file: KeysFile = None
) -> None:
    """List the keys, without their secrets."""
    with _faults():
        from pushlane_gateway.auth.key_file import read_keys

        path = _keys_file(config, data, keys_file)
        found = read_keys(path, follow=False)
        keys = list(found[0].values()) if found else []
        if json:
            _print_json([_public(key) for key in keys])
        elif keys:
            _print_table([_HEAD, *map(_row, keys)])
        else:
            asked = "nobody gets in" if found else "the server asks nobody for one"
            _note(f"no keys in {path}: {asked}; `pushlane token create` makes one")


@app.command
def revoke(
    id: str,
    /,
    *,
    json: Json = False,
    config: Config = None,
    data: Data = None,
    keys_file: KeysFile = None,
) -> None:
    """Revoke a key: its sessions, and the tokens made from it, end within seconds.

    Parameters
    ----------
    id
        The key's id, as `pushlane token list` shows it.
    """
    with _faults():
        from pushlane_gateway.auth.key import id_of
        from pushlane_gateway.auth.key_file import remove_key

        key = remove_key(_keys_file(config, data, keys_file), id_of(id) or id)
        if json:
            _print_json({**_public(key), "revoked": True})
        else:
            print(f"revoked {key.id} ({key.name})")


def _keys_file(config: str | None, data: str | None, keys_file: str | None) -> Path:
    from pushlane_gateway.configuration.errors import ConfigurationError
    from pushlane_gateway.configuration.load import load

    found = load(config, {"data": data, "keys-file": keys_file}).keys_file
    if found is None:
        raise ConfigurationError("the store has no folder for keys: set auth.keys_file")
    return found


@contextmanager
def _faults() -> Iterator[None]:
    """What the caller did wrong: a line on stderr, and 2; what the machine can't do: 1."""
    from pushlane.wire.errors import PushlaneError
    from pushlane_gateway.auth.key_file import BrokenKeyFile
    from pushlane_gateway.configuration.errors import ConfigurationError

    try:
        yield
    except (PushlaneError, ConfigurationError) as error:
        _note(str(error))
        sys.exit(2)
    except BrokenKeyFile as error:
        _note(str(error))
        sys.exit(1)
    except BrokenPipeError:
        raise  # nobody reads our output: no fault of a file
    except OSError as error:
        _note(f"{error.filename}: {error.strerror}; run it as the user that the server runs as")
        sys.exit(1)


def _note(text: str) -> None:
    print(f"pushlane token: {text}", file=sys.stderr)


def _print_json(value: Any) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def _public(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "rules": [str(rule) for rule in key.rules],
        "created_at": key.created_at,
        "expires_at": key.expires_at,
    }


def _row(key: ApiKey) -> tuple[str, ...]:
    until = "never" if key.expires_at is None else _day(key.expires_at)
    return key.id, key.name, key.tenant, _rules(key), _day(key.created_at), until


def _rules(key: ApiKey) -> str:
    return ", ".join(map(str, key.rules))


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
