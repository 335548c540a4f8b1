"""TLS for links: each node shows a certificate of the cluster's authority and demands one.

The authority decides who is a node. Take one that signs nothing else; where it must sign others as
well, set a cluster key too, or have the names checked (`check_names`). A node's certificate serves
both ways: as a server's and as a client's.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import NamedTuple

import trio

from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable, Refusal, Unreached
from pushlane_dispatcher.cluster.links.talk import HTTP_ANSWER, LOST, no_tls

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, as for clients: with forward secrecy, and no CBC. TLS 1.3 has its own."""

_PLAIN = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""What OpenSSL calls somebody who speaks HTTP without TLS."""


class LinkTls(NamedTuple):
    """Contexts for both directions, made once."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def load_tls(certificate: str, key: str, authority: str, *, check_names: bool = False) -> LinkTls:
    """From three PEM files; raises OSError or ValueError when they can't be used.

    `check_names`: whoever dials demands that the certificate has the name or IP that was dialled.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.num_tickets = 0  # nobody resumes, and a ticket that isn't read resets a connection
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = check_names
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.load_cert_chain(certificate, key, password=_no_password)
        context.load_verify_locations(authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return LinkTls(server, client)


async def secure(
    stream: trio.SocketStream, tls: LinkTls, *, host: str = ""
) -> trio.SSLStream[trio.SocketStream]:
    """The same connection with TLS; `host`: we dialled it. Raises LinkFailed."""
    if host:
        secured = trio.SSLStream(stream, tls.client, server_hostname=host)
    else:
        secured = trio.SSLStream(stream, tls.server, server_side=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError) and cause.reason in _PLAIN:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(HTTP_ANSWER)
                await stream.send_eof()
        if text := no_tls(error):
            raise LinkRefused(Refusal.CERTIFICATE, text) from None
        raise LinkUnreachable(Unreached.LOST, LOST) from None
    return secured


def _no_password() -> str:
    """Without this OpenSSL would ask at the terminal, and the whole server would wait."""
    raise ValueError("the key is encrypted: give one without a passphrase")
