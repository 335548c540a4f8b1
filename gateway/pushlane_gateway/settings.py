"""The bounds of the gateway: how long it waits, how much it keeps, and why.

`pushlane.wire.limits` has what a client may send in a frame; here is what happens around it. Every
bound that refuses, cuts or ends something has a counter in listener/counters.py that says how
often; the others only hold back.
"""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    # Listening
    connections: int = 20_000
    """Connections open at once. One more gets 503 and is closed. WebSockets share them (see
    `[shares]`): one more than a share is turned away with `overload`."""
    backlog: int = 1_024
    """Connections that the kernel keeps for us between two accepts."""
    accept_pause_ms: int = 200
    """The pause after an accept failed because there were no file descriptors or no memory left."""
    unix_mode: int = 0o660
    """Who may connect to a Unix socket: its owner and its group, a reverse proxy's for example."""
    certificate_check_ms: int = 2_000
    """How often, at most, an accept looks whether the certificate files have changed."""

    # Requests
    head_ms: int = 10_000
    """How long TLS handshake and head of a request may take, from the first byte they could send:
    a half-open handshake holds a connection no longer."""
    head_bytes: int = 16 * KIB
    """Request line and headers together; more is 431. Twice what common proxies allow a header."""
    header_count: int = 100
    """Headers of one request; more is 431."""
    keep_alive_ms: int = 75_000
    """How long a connection without a request stays: a bit longer than common proxies keep it."""
    body_bytes: int = 4 * MIB
    """Body of one request; more is 413. What a frame may have, too."""
    body_stall_ms: int = 20_000
    """How long a request's body may stand still; then 408. A body has this long in all, too …"""
    body_rate: int = 1 * KIB
    """… and a second more for each `body_rate` bytes that came: slower bodies end with 408 …"""
    body_ms: int = 300_000
    """… as do those that are not complete after this, however fast they come."""
    unauthenticated_bytes: int = 64 * KIB
    """A WebSocket's frame before its hello was accepted; the body that opens a pipe, and of a
    pipe's request without the header `Pushlane-Pipe`. More is 1009 or 413."""
    unauthenticated_total_bytes: int = 48 * MIB
    """What may wait in memory, of and for all clients that are not authenticated together: heads,
    bodies, frames that are not whole, answers that are not taken, and 150 KiB for each TLS
    handshake message that is not complete; without authentication that is everybody. Beyond it the
    one with the most is cut: 503, or 1013."""
    waiting_bytes: int = 256 * MIB
    """What may wait in memory of frames and bodies that are not complete, of all authenticated
    clients together. Shared (see `[shares]`): beyond it, or beyond a share, the connection with the
    most is cut: 429, or 1013. One connection of a client may always go on."""
    write_stall_ms: int = 30_000
    """How long a client may take nothing of what waits for it; then the connection is cut."""
    pipeline_bytes: int = 64 * KIB
    """Requests sent ahead that are kept while one is answered; what is more stays in the kernel."""
    linger_ms: int = 2_000
    """How long we go on reading after a refusal, so that the client gets to see it …"""
    linger_bytes: int = 16 * MIB
    """… and how much."""

    # WebSockets
    ping_ms: int = 25_000
    """A client silent for this long is pinged …"""
    silence_ms: int = 62_500
    """… and cut after this long (2.5 heartbeats): its machine or its network has gone."""
    close_ms: int = 5_000
    """How long a close may take, with what waits to be sent before it and the client's answer."""
    outbox_bytes: int = 64 * MIB
    """What may wait for one client before the connection is cut. The session acts long before."""
    tiny_frames: int = 200
    """Pings, pongs and fragments of less than 256 bytes that a client may send at once, and chunks
    of such a size in the body of a request that nobody has authenticated …"""
    tiny_frames_rate: int = 50
    """… and how many more each second. They cost as much as messages and bring nothing; a client
    that floods is closed with 1008, a request refused with 429."""
    write_bytes: int = 256 * KIB
    """How much is joined for one write: more fits into no kernel buffer."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")
        if self.unauthenticated_bytes < 64 * KIB:
            raise ValueError("unauthenticated_bytes is less than 64 KiB: a hello needs that")
        if self.silence_ms <= self.ping_ms:
            raise ValueError("silence_ms is not longer than ping_ms: no ping could be answered")


DEFAULT_SETTINGS = GatewaySettings()
