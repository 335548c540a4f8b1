"""Spark jobs: what is worth knowing about messages after they have passed.

Retention, usage, metrics, audit and replay jobs will live here; they read the store's tables beside
the running server and never stand in a message's way. So far the package is empty. The jobs may
import storage (its schema and segment format) and `pushlane` (to replay); nothing imports the jobs.
"""
