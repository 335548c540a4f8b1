"""The sans-I/O core: a shard as a state machine, events in and effects out.

Nothing here awaits, reads a clock, draws a random number or touches a file or a socket: time and
random numbers come in as arguments. That is what lets a simulation replay any run from its seed.
An import contract guards it.
"""
