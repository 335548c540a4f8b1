"""Sessions: a client's frames to the dispatcher, and back.

The way in: `connection` reads a socket and takes its frames one after the other, `requests` and
`publishing` hand them to the dispatcher's port as plain calls. The way out: a feed pushes into a
`sub`, `delivery` makes frames of it, and the socket gathers what is sent in one tick.
A `session` is what outlives a connection: `sessions` keeps it for a while, for a client that
resumes. `link` says what all this needs of a socket.
"""
