"""`pushlane serve`: runs the server until it is told to stop.

Stdout gets one line, when the server is ready; everything else is a log line on stderr. Exit codes:
0 after a drain, 1 when a second signal cut that short, 2 when the configuration is bad, 75 when the
store can't be reached now: whoever supervises it may try again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from pushlane_gateway.server import Server


def serve(
    *,
    listen: Annotated[list[str] | None, Parameter(negative="")] = None,
    data: str | None = None,
    store: str | None = None,
    leases: str | None = None,
    roles: str | None = None,
    config: str | None = None,
    insecure: Annotated[bool | None, Parameter(negative="")] = None,
    keys_file: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    print_config: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Run the server until SIGTERM or Ctrl-C.

    Without any flag it listens on 127.0.0.1:8420 and keeps its messages in ./pushlane-data. It
    prints one line when it is ready, and logs to stderr. docs/configuration.md has every key;
    flags override PUSHLANE_… variables, which override the file.

    Parameters
    ----------
    listen
        An address: HOST:PORT, [IPV6]:PORT or unix:PATH; may be given several times.
        127.0.0.1:8420 unless given.
    data
        The folder of the embedded store, short for --store sqlite:DIR. It is created if it doesn't
        exist. Default: ./pushlane-data.
    store
        Where messages are kept: sqlite:DIR, cassandra://HOST[,HOST][:PORT]/KEYSPACE (options such
        as ?replication=3 and ?dc=NAME are in docs/cassandra.md), or memory: for data that doesn't
        have to last.
    leases
        Where to cache who holds which message: memory:, or redis://HOST:PORT for a cache that
        outlives this process.
    roles
        What this server does in a cluster: gateway serves clients, dispatcher owns queues. Both
        (gateway,dispatcher) unless given.
    config
        A TOML file. Default: pushlane.toml, if it exists.
    insecure
        Serve other machines without asking for keys.
    keys_file
        The file of API keys, which `pushlane token` writes. Unless given, keys.json in the data
        folder; a server on Cassandra has none, and no keys without this.
    tls_certificate
        A file with the certificate and its chain, PEM; with it the server speaks TLS only.
    tls_key
        A file with the certificate's private key, PEM.
    log_level
        debug, info, warning or error. info unless given.
    log_format
        text or json. Unless given, text on a terminal and json elsewhere.
    settings
        Any other key of the configuration, as KEY=VALUE, such as limits.batch=500; may be given
        several times.
    print_config
        Print every key, its value and where that was set, and exit.
    """
    from pushlane_dispatcher.node import StoreAway
    from pushlane_gateway.configuration.errors import ConfigurationError

    flags = {
        "listen": listen,
        "data": data,
        "store": store,
        "leases": leases,
        "roles": None if roles is None else roles.split(","),
        "insecure": insecure,
        "keys-file": keys_file,
        "tls-certificate": tls_certificate,
        "tls-key": tls_key,
        "log-level": log_level,
        "log-format": log_format,
    }
    try:
        drained = _run(config, flags, settings or [], print_config)
    except ConfigurationError as error:
        for fault in error.faults:
            print(f"pushlane serve: {fault}", file=sys.stderr)
        sys.exit(2)
    except StoreAway as error:
        print(f"pushlane serve: {error}", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    sys.exit(0 if drained else 1)


def _run(
    config: str | None, flags: Mapping[str, object], settings: list[str], print_config: bool
) -> bool:
    import trio

    from pushlane_gateway.configuration.load import load_with_sources
    from pushlane_gateway.configuration.show import show
    from pushlane_gateway.descriptors import ensure_descriptors
    from pushlane_gateway.logs import configure_logs
    from pushlane_gateway.server import serve as serve_until_stopped

    configuration, sources = load_with_sources(config, flags, settings)
    if print_config:
        print(show(configuration, sources), end="")
        return True
    said = "log.format" in sources
    configure_logs(configuration.log.level, configuration.log.format if said else "auto")
    ensure_descriptors(configuration.gateway.connections)
    return trio.run(serve_until_stopped, configuration, _ready)


def _ready(server: Server) -> None:
    with suppress(BrokenPipeError):  # nobody needs to read it
        print(f"ready on {', '.join(server.urls)}", flush=True)
