"""Leases: a cache of what is out with which consumer.

It lets a new owner of a shard know, after a crash, which messages not to send again too early. It
can vanish at any time: it delays redeliveries and saves reads, and never overrules storage. One
small interface has several back ends, and one conformance suite runs over all of them. Leases may
import `pushlane.wire` and nothing else of the project; only the dispatcher may import it.
"""
