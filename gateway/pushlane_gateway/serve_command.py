"""`pushlane serve`: runs the server until it is told to stop.

Stdout gets one line, when the server is ready; everything else is a log line on stderr. Exit codes:
0 after a drain, 1 when a second signal cut that short, 2 when the configuration is bad.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
    config: str | None = None,
    insecure: Annotated[bool | None, Parameter(negative="")] = None,
    keys_file: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    print_config: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run the server.

    Parameters
    ----------
    listen
        An address, HOST:PORT, [IPV6]:PORT or unix:PATH; may be given several times.
    data
        The folder of the embedded store: short for --store sqlite:DIR.
    store
        Where messages are kept, as a URL: sqlite:DIR or memory:.
    leases
        Where it is cached who holds which message, as a URL: memory:.
    config
        A TOML file; pushlane.toml when it is there.
    insecure
        Serve addresses that other machines reach without asking for keys.
    keys_file
        The file of API keys.
    tls_certificate
        A certificate file, PEM; with it the server speaks TLS only.
    tls_key
        The certificate's private key, PEM.
    log_level
        debug, info, warning or error.
    log_format
        text or json. Unless given, text on a terminal and json elsewhere.
    settings
        Any other key of the configuration, as KEY=VALUE; may be given several times.
    print_config
        Print the whole configuration and exit.
    """
    from pushlane_gateway.configuration.errors import ConfigurationError

    flags = {
        "listen": listen,
        "data": data,
        "store": store,
        "leases": leases,
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
    sys.exit(0 if drained else 1)


def _run(
    config: str | None, flags: Mapping[str, object], settings: list[str], print_config: bool
) -> bool:
    import trio

    from pushlane_gateway.configuration.load import load_with_sources
    from pushlane_gateway.configuration.show import show
    from pushlane_gateway.logs import configure_logs
    from pushlane_gateway.server import serve as serve_until_stopped

    configuration, sources = load_with_sources(config, flags, settings)
    if print_config:
        print(show(configuration, sources), end="")
        return True
    said = "log.format" in sources
    configure_logs(configuration.log.level, configuration.log.format if said else "auto")
    return trio.run(serve_until_stopped, configuration, _ready)


def _ready(server: Server) -> None:
    print(f"ready on {', '.join(server.urls)}", flush=True)
