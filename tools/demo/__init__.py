"""`make demo`: a server, and a page that shows what it does.

    __main__.py   the command line; runs until Ctrl-C
    gateway.py    `pushlane serve` as a child that is killed and comes back
    site.py       serves the page, and kills the gateway when it asks for that

The page itself is in sdk_js/demo: it is made of the JavaScript SDK's bundle and nothing else.
"""
