"""Replay: messages that have ended, published once more, to the same queue or another.

`choosing` says which and in which order, `bookmark` where a replay stands, and `report` is the job.
The driver itself publishes them: so they come in their order, at exactly the rate, and a bar can
show how far it is.
"""
