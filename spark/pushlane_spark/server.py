"""What jobs ask of a server over HTTP: the embedded store is its own while it runs."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pushlane_spark.errors import ServerRefused

ANSWER_S = 60.0
"""How long a server may take to answer."""
_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}


class Server:
    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` as clients take it; `ServerRefused` when it is none."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in _SCHEMES or not parts.netloc:
            raise ServerRefused(f"{url!r} is not a server URL: use http://HOST:PORT")
        self._base = f"{_SCHEMES[parts.scheme]}://{parts.netloc}"
        self._token = token

    def ask(self, method: str, path: str, body: object) -> Any:
        """The answer; `ServerRefused`."""
        headers = {"content-type": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        request = Request(self._base + path, json.dumps(body).encode(), headers, method=method)
        try:
            with urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise ServerRefused(f"{path}: {_told(error)}") from error
        except (URLError, OSError, ValueError) as error:
            raise ServerRefused(f"{self._base} does not answer: {error}") from error


def _told(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the server answered {error.code}"
