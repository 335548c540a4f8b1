"""Copying a store into another one, of the same kind or not: `pushlane store copy`.

Rows go over as they are (queues with their ids and versions, segments with their bytes and
checksums), so whatever a new owner reads from the target is what it would have read from the
source. docs/store-copy.md is for operators.
"""
