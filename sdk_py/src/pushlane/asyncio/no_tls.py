"""Why there is no TLS connection, and whether to try again.

A server that doesn't speak TLS, or whose certificate is not trusted, will not do so in a second
either: who connects for the first time is told at once. A client that was connected before goes
on trying, because somebody may be about to fix it.
"""

from __future__ import annotations

import ssl

from pushlane.core.url import Endpoint
from pushlane.wire.errors import BadRequest, ConnectionLost, PushlaneError

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
)
"""What OpenSSL says when the other side answers something else."""


def no_tls(endpoint: Endpoint, fault: ssl.SSLError, was_open: bool) -> PushlaneError:
    """The error for a TLS handshake that failed."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        what = f"the certificate of {endpoint} is not trusted: {fault.verify_message}"
        advice = "SSL_CERT_FILE can name the certificate of its authority"
    elif fault.reason in _NOT_TLS:
        what = f"{endpoint} doesn't speak TLS"
        advice = "use ws:// or http:// in its address"
    else:
        return ConnectionLost(f"no connection to {endpoint}: {fault}")
    return ConnectionLost(what) if was_open else BadRequest(f"{what}: {advice}")
