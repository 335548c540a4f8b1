"""The embedded store: one SQLite file in a folder, one fsync for many calls.

The way of a write: a call of `SqliteStore` (store.py) is put into the writer's queue. While one
commit is under way the next group gathers; the writer's thread (writer.py) runs all of it in one
transaction on the tables (tables.py), commits, and wakes everybody with one hop. Reads go to
reader threads with connections of their own (reader.py, reads.py). The write-ahead log is copied
into the database file in the background (checkpointer.py); what was dropped is deleted bit by
bit, and its space given back (space.py).

A backup (backup.py) reads beside all that, from this process or another one; restore.py makes a
folder of it that can be served.

Nothing is imported here: the dispatcher's core imports `pushlane_storage` and does no I/O.
"""
