"""Shards on trio: who owns them, how they open, and what carries out the wishes of the core."""
