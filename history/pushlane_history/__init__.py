"""Histories of runs, and the checker that judges them: the referee of the product.

`event` has the format, `rule` the table of rules and the report, `checker` says which rules apply
when. The rules themselves stand in `publishing`, `leasing` and `ending`. A referee takes nobody's
word: this package imports nothing else of the project.
"""
