"""The replicated store: many nodes, one truth, in Cassandra.

Three layers. `ring.py` is the seam: typed operations on our tables, with four outcomes. Below it,
`driver_ring.py` carries them out over the Cassandra driver (connection.py, statements.py). Above
it, the store proper: `store.py` puts together queues, segments, settlements, buckets, the schedule,
usage, and who owns what (slots.py, node.py, watch.py). Nothing above the seam knows the driver, so
it runs on a model of Cassandra just as well.

docs/cassandra.md has the data model and the argument why a paused owner can't hurt.

Nothing is imported here, and the driver only when a store is opened: it takes a while to load.
"""
