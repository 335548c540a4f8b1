"""Usage: what each shard counts, and who writes and reports it."""
