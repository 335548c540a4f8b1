"""Outages of a cluster: three nodes on one Cassandra and one Redis, with clients on all of them."""
