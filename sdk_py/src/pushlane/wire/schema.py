"""The protocol as an AsyncAPI 3.0 document, for people and tools that don't read Python.

    python -m pushlane.wire.schema [FILE]      writes docs/asyncapi.json

Everything in it is read off the frames, the limits and the tables of errors and close codes; a test
fails when the file in docs/ is not what this would write. Operations are seen from the server, as
AsyncAPI wants it: it *receives* what clients send. What JSON Schema can't say (exactly one of body
and data, a key without a priority) is in docs/protocol.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from . import frames
from .codec import CODECS
from .errors import CLOSES, CODES
from .limits import LIMITS

COMMAND = "python -m pushlane.wire.schema"

_VERSION = "1.0.0"
_CLIENT: tuple[type[frames.Frame], ...] = get_args(frames.ClientFrame)
_SERVER: tuple[type[frames.Frame], ...] = get_args(frames.ServerFrame)

# The answers to each request; `error` can be the answer to any.
_REPLIES: dict[type[frames.Frame], type[frames.Frame]] = {
    frames.Hello: frames.Welcome,
    frames.Publish: frames.Published,
    frames.Subscribe: frames.Subscribed,
    frames.Start: frames.Done,
    frames.Ack: frames.Done,
    frames.Nack: frames.Done,
    frames.Extend: frames.Done,
    frames.Unsubscribe: frames.Done,
}


def document() -> dict[str, Any]:
    """The whole AsyncAPI document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Pushlane",
            "version": _VERSION,
            "description": "The wire protocol pushlane.v1; docs/protocol.md explains it.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {"host": "127.0.0.1:8420", "protocol": "ws", "pathname": "/v1/ws"},
        },
        "channels": {"session": _channel()},
        "operations": {
            **{f"receive_{_op(frame)}": _receive(frame) for frame in _CLIENT},
            **{f"send_{_op(frame)}": _operation("send", frame) for frame in _SERVER},
        },
        "components": {
            "messages": {_op(frame): _message(frame) for frame in _CLIENT + _SERVER},
            "schemas": _schemas(),
        },
        "x-pushlane": {
            "subprotocols": list(CODECS),
            "limits": {name: _limit(name) for name in LIMITS},
            "errors": {code: _error(code) for code in CODES},
            "closes": {str(code): _close(code) for code in CLOSES},
        },
    }


def render() -> str:
    """The document as it stands in docs/."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def _op(frame: type[frames.Frame]) -> str:
    op = frame.__struct_config__.tag
    assert isinstance(op, str), frame
    return op


def _first_line(frame: type[frames.Frame]) -> str:
    assert frame.__doc__ is not None, frame
    return frame.__doc__.split("\n")[0]


def _channel() -> dict[str, Any]:
    messages = {
        _op(frame): _ref(f"components/messages/{_op(frame)}") for frame in _CLIENT + _SERVER
    }
    return {
        "address": "/v1/ws",
        "description": "One WebSocket connection, one object per frame.",
        "messages": messages,
        "bindings": {"ws": {"method": "GET"}},
    }


def _message(frame: type[frames.Frame]) -> dict[str, Any]:
    return {
        "name": _op(frame),
        "summary": _first_line(frame),
        "payload": _ref(f"components/schemas/{frame.__name__}"),
    }


def _operation(action: str, frame: type[frames.Frame]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": _ref("channels/session"),
        "summary": _first_line(frame),
        "messages": [_ref(f"channels/session/messages/{_op(frame)}")],
    }


def _receive(frame: type[frames.Frame]) -> dict[str, Any]:
    operation = _operation("receive", frame)
    if frame in _REPLIES:
        answers = (_op(_REPLIES[frame]), _op(frames.ErrorFrame))
        operation["reply"] = {
            "channel": _ref("channels/session"),
            "messages": [_ref(f"channels/session/messages/{op}") for op in answers],
        }
    return operation


def _schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        _CLIENT + _SERVER, ref_template="#/components/schemas/{name}"
    )
    return dict(sorted(schemas.items()))


def _limit(name: str) -> dict[str, Any]:
    return {key: value for key, value in LIMITS[name]._asdict().items() if key != "name"}


def _error(code: str) -> dict[str, Any]:
    hidden = ("code", "cls")
    return {key: value for key, value in CODES[code]._asdict().items() if key not in hidden}


def _close(code: int) -> dict[str, Any]:
    return {key: value for key, value in CLOSES[code]._asdict().items() if key != "code"}


def _ref(path: str) -> dict[str, str]:
    return {"$ref": f"#/{path}"}


def main(arguments: list[str]) -> None:
    """Write the document to the file named, or to docs/asyncapi.json."""
    path = Path(*arguments) if arguments else Path("docs", "asyncapi.json")
    path.write_text(render())
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
