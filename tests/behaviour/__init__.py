"""One suite of behaviour against the SDK surface of the design, section 12.

Each test is written once, as an async function over a `World`, and runs for every shell, transport
and store: a line in `worlds.py` adds one. It talks to a real server in a process of its own.
"""
