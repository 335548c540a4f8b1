"""What an operator may set: from a TOML file, the environment and flags, the later ones winning.

`configuration` is the one Struct with everything in it and `load` makes it out of the three
`sources`. `known` lists every key with its type, default, range and reason, for the checks, for
`--print-config` and for docs/configuration.md, which `tools/generated.py` writes.
"""
