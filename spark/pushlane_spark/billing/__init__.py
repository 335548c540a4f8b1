"""Usage and billing: what tenants used by hour and day, priced by a rate card.

`rate_card` reads prices, `storage` finds out what lay in queues, `pricing` makes lines of usage and
prices, `exporting` writes them to files, `writing_back` to the store, and `report` is the job.
"""
