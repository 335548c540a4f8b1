"""Metrics: how queues did in a period, as a page with plots.

`series` has what usage says over time and by queue, `anomalies` compares hours with those of
earlier weeks, `stored` looks at messages themselves; `view` puts together what one reader may see,
`plots` draws it, `page` makes the page, and `report` is the job.
"""
