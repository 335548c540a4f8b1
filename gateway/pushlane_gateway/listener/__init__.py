"""The listener: sockets, TLS, and one connection's way from its first byte to an app or a session.

    listener.py      opens addresses, accepts, limits, stops; looks for clients that stand still
    address.py       `127.0.0.1:8420`, `[::1]:8420`, `unix:/path`
    certificates.py  TLS from files, read again when they change
    link.py          a connection as non-blocking reads and writes; tls_link.py the same with TLS
    connection.py    the first request decides: HTTP or WebSocket
    head.py          finds and judges the head of a request; refusal.py says no
    exchange.py      one HTTP request and its answer, over h11 and ASGI
    upgrade.py       the WebSocket handshake
    socket.py        one WebSocket: what a session sees
    decoder.py       bytes to messages, the quick way and the complete one
    outbox.py        messages to bytes, many in one write
    hub.py           what all connections share: the flusher, budgets of memory
    counters.py      how often what happened

An idle WebSocket is one task, which waits for its socket to become readable, and no buffer.
"""
