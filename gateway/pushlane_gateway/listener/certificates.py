"""TLS from a certificate file and a key file, read again when either of them changes.

Renewed certificates come as new files under the old names. Whoever accepts a connection asks for
the context; at most every `certificate_check_ms` that looks at the files. A new pair that can't be
used (half written, or a key that doesn't fit) changes nothing: the old one serves on, the log says
so once, and the next change is tried again. Connections that are open keep what they began with.
"""

from __future__ import annotations

import logging
import os
import ssl

import trio

from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.settings import DEFAULT_SETTINGS, GatewaySettings

log = logging.getLogger(__name__)

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: with forward secrecy, and no CBC, whose padding has been broken again and again. TLS
1.3 has its own."""

_Stamp = tuple[int, int, int]


class Certificates:
    """The files' newest usable context. Making one raises OSError or ValueError."""

    def __init__(
        self,
        certificate: str,
        key: str,
        settings: GatewaySettings = DEFAULT_SETTINGS,
        counters: Counters | None = None,
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._settings = settings
        self._counters = counters or Counters()
        self._seen = self._stamps()
        self._context = self._load()
        self._next_look = 0.0

    def context(self) -> ssl.SSLContext:
        """What the next connection is to use."""
        now = trio.current_time()
        if now >= self._next_look:
            self._next_look = now + self._settings.certificate_check_ms / 1000
            self._look()
        return self._context

    def _look(self) -> None:
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            self._seen = stamps
            self._context = self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if not isinstance(error, FileNotFoundError) or self._seen:
                self._counters.certificate_failures += 1
                log.error("certificate %s not reloaded: %s", self._certificate, error)
            if isinstance(error, FileNotFoundError):
                self._seen = ()
        else:
            log.info("certificate %s reloaded", self._certificate)

    def _stamps(self) -> tuple[_Stamp, ...]:
        found = (os.stat(self._certificate), os.stat(self._key))
        return tuple((file.st_mtime_ns, file.st_size, file.st_ino) for file in found)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self._certificate, self._key, password=_no_password)
        return context


def _no_password() -> str:
    """Without this OpenSSL would ask at the terminal, and the whole server would wait."""
    raise ValueError("the key is encrypted: give one without a passphrase")
