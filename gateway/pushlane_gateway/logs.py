"""Logs: one line an event on stderr, for people or for programs.

The packages log with the standard library, so that they need nothing of the gateway; structlog
only gives the lines their form. Stdout is kept for the one line that says that the server is ready.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

Format = Literal["auto", "text", "json"]
"""`auto` is text on a terminal and JSON elsewhere."""


def configure_logs(level: str = "info", format: Format = "auto") -> None:
    """Set up the root logger; a second call replaces what the first one did."""
    terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor
    if format == "json" or (format == "auto" and not terminal):
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=terminal)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
