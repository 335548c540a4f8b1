"""The dispatcher: decides who gets which message, and when.

A message stays here from the moment it is accepted until it is settled: the owner of a shard
appends it to the store, leases it to one consumer at a time, and retries it or moves it to the dead
letters. The decisions are made in `pushlane_dispatcher.core`, which does no I/O; the rest of the
package carries them out on trio. The dispatcher may import storage, leases and `pushlane.wire`;
only the gateway may import the dispatcher.
"""
