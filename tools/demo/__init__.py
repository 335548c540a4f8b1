"""`make demo`: a server, or a cluster of them, and a page that shows what it does.

    __main__.py   the command line; runs until Ctrl-C
    gateway.py    `pushlane serve` as a child that is killed and comes back
    site.py       serves the page, and kills a server when it asks for that
    balancer.py   one address for the servers of a cluster

The page itself is in sdk_js/demo: it is made of the JavaScript SDK's bundle and nothing else.
"""
