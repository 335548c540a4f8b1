"""The lease cache in Redis: it outlives the process, and a new owner anywhere can ask it.

Every call is one Lua script, or one for each chunk of its runs, that compares the epoch first.
One thread holds the connection: what gathers while a round trip is under way goes with the next.
"""
