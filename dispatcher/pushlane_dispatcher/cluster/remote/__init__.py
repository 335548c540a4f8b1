"""Shards on other nodes, as a gateway here sees them."""
