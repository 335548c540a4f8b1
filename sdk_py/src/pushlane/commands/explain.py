"""`pushlane explain`: short for `pushlane queue explain`."""

from __future__ import annotations

from pushlane.commands.output import Json
from pushlane.commands.server import HERE, Server


def explain(queue: str, id: str, /, *, json: Json = False, server: Server = HERE) -> None:
    """Tell where a message is, since when, and why.

    Parameters
    ----------
    queue
        The queue's name.
    id
        The message's id, as publish printed it.
    """
    from pushlane.commands.queue import explain as explain_in_queue

    explain_in_queue(queue, id, json=json, server=server)
