"""The gateway: the first and the last part of the server that a message passes.

`server` puts everything together: the `listener` turns connections into requests and sockets, a
`session` checks a client's frames, hands them to the dispatcher that owns the queue's shard, and
pushes deliveries back within the client's credit; `http` is the API beside it, `auth` says who it
is and whether they may, `configuration` what an operator may set, `metrics` and `logs` what
happened, `doctor` what is wrong. `serve_command` is `pushlane serve`. The gateway may import the
dispatcher and `pushlane.wire`; nothing imports the gateway. docs/architecture.md has the picture,
docs/operating.md what an operator sees of it.
"""
