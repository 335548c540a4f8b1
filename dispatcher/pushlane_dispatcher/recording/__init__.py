"""The recorded history: what the server did with some queues, in the checker's format.

`recorder` writes files, beside the work and never in its way. `notes` says what of a shard's doings
is written; `engine` and `runner` are a shard's own, with notes taken of what they do. A shard that
is not recorded knows nothing of all this.
"""
