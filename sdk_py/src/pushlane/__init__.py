"""Pushlane for Python: the client side, and the language that both sides speak.

A message begins and ends here: a producer hands it to this package, and a consumer gets it back
from it. `pushlane.wire` is the schema of the frames in between and is the one part that the server
imports too; `pushlane.cli` is the `pushlane` command. This package imports nothing of the server,
so that a client never has to install one.
"""
