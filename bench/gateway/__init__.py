"""The gateway's speed beside that of other queues: `python -m bench.gateway`.

A server runs on one core, and a load generator in Node (folder `node`) on another: one measuring
code with an adapter for each system. `systems` starts and stops them, `measure` asks the load
generator for each figure, `judge` compares the figures with their targets, and `showing` shows
them.
"""
