"""Pipes: frames over HTTP requests, where a WebSocket can't get through.

A `pipe` is one more link of a session, with two `boxes`: what requests send comes into its inbox,
what the session sends waits in its outbox until a request fetches it. `pipes` knows all of them.
The requests themselves are http/pipe.py's business.
"""
