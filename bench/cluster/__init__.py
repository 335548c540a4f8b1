"""Benchmarks of three nodes on one Cassandra and one Redis."""
