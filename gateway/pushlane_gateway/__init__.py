"""The gateway: the first and the last part of the server that a message passes.

The listener, the WebSocket sessions, the HTTP API and the pages will live here: they check a frame,
find out who sent it and whether they may, and hand it to the dispatcher that owns the queue's
shard; on the way out they push deliveries to consumers within their credit. So far the package
holds only the `serve` command, which says that the listener is still to come. The gateway may
import the dispatcher and `pushlane.wire`; nothing imports the gateway.
"""
