"""What a caller has: a door to queues by name, and feeds of what comes out of them.

`door` asks, and parks what must wait; `feed` joins the shards of a queue, each a `part`; `receive`
is the feed of one request; `loose` settles receipts that nobody holds.
"""
