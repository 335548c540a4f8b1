"""Cassandra and Redis as plain processes, for development, tests and benchmarks.

No container engine is needed: Cassandra's jars come from Maven, Redis from the system. `cassandra`
and `redis` start servers that the caller owns; `shared` one that all processes of a test run use
together; `python -m tools.services` both, for a developer. Whatever happens to the caller, what it
started ends with it.
"""
