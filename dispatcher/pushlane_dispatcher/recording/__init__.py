"""The recorded history: what the server did with some queues, in the checker's format.

`recorder` writes files, beside the work and never in its way. `notes` says what of a shard's doings
is written: a shard that is recorded has some, and tells them what it is asked, what it answers and
what is durable.
"""
