"""The HTTP API: a Starlette app over the same dispatcher as the sessions.

`table` lists every operation, `app` makes routes of them. A request comes through `cors`, then a
resource (one path) finds the operation, finds out who asks and calls its handler with a `call`.
Handlers stand in files of their own: `publish`, `receive` (and what settles), `queues`, `messages`,
`tokens`, `health`. `objects` has what is sent and answered; `openapi` and `page` describe it all.
"""
