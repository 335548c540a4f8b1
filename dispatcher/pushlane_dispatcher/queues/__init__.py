"""Queues: their rows and configuration, how they are made, changed and deleted, and which shard a
message belongs to.
"""
