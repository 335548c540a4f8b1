"""What goes through a byte stream, without the stream: WebSocket frames, HTTP requests.

Every shell reads and writes bytes in its own way; `websocket.py` and `http.py` make sense of them,
over the sans-I/O parts of `websockets` and `h11`.
"""
