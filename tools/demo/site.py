"""The page's files, and what it asks of us: where the servers are, and to kill one.

Only pages of this machine may ask, under a name of this machine: the rule that a server without
keys has for its own callers (auth/origin.py).
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pushlane_gateway.auth.origin import OriginPolicy
from tools.demo.gateway import Gateway
from tools.services.process import CannotStart

ORIGINS = OriginPolicy(lambda: False)
INDEX = "index.html"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
"""What machines disagree about; the rest they know."""


def find_files(page: Path, bundle: Path) -> dict[str, Path]:
    """What is served, by name. Raises CannotStart where it was not built."""
    if not (page / INDEX).is_file() or not bundle.is_file():
        raise CannotStart("the page is not built: run `make demo`")
    return {path.name: path for path in (*page.iterdir(), bundle) if path.is_file()}


def make_site(url: str, gateways: Sequence[Gateway], files: dict[str, Path]) -> ASGIApp:
    """The ASGI app. `url` is where clients go."""
    locks = {gateway.name: (gateway, trio.Lock()) for gateway in gateways}
    headers = _headers(url)

    def state() -> Response:
        nodes = [
            {"name": each.name, "isRunning": each.is_running, "starts": each.starts}
            for each in gateways
        ]
        return JSONResponse({"url": url, "nodes": nodes})

    async def show(request: Request) -> Response:
        path = files.get(request.path_params.get("name", INDEX))
        if path is None:
            return PlainTextResponse("there is no such page\n", 404)
        text = await trio.Path(path).read_bytes()
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
        return Response(text, media_type=kind, headers=headers)

    async def tell(_: Request) -> Response:
        return state()

    async def restart(request: Request) -> Response:
        found = locks.get(request.path_params["node"])
        if found is None:
            return PlainTextResponse("there is no such server\n", 404)
        gateway, lock = found
        async with lock:
            await gateway.restart()
        return state()

    routes = [
        Route("/", show),
        Route("/control/state", tell),
        Route("/control/restart/{node}", restart, methods=["POST"]),
        Route("/{name}", show),
    ]
    return Guard(Starlette(routes=routes))


class Guard:
    """An ASGI app around another one: strangers get nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if not ORIGINS.allows(headers.get("origin"), headers.get("host")):
                app = PlainTextResponse("this Origin or Host is not allowed here\n", 403)
        await app(scope, receive, send)


def _headers(url: str) -> dict[str, str]:
    """The page loads what is here, talks to its server, and to nobody else."""
    there = f"{url} {url.replace('http:', 'ws:')}"
    policy = (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        f"img-src 'self' data:; connect-src 'self' {there}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
