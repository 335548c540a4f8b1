"""The commands of `pushlane` that a client needs; the entry points in pyproject.toml name them.

Each module is loaded whenever `pushlane` starts, so what is heavy is imported inside. They need the
extra `cli`. Results go to stdout, everything else to stderr; `exits` says with which code a command
ends, `server` which server it talks to, `run` carries it out.
"""
