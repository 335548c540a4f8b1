"""The asyncio shell: sockets, timers and tasks around `pushlane.core`."""

from .client import Client, connect
from .driver import Token
from .message import Message
from .queues import Queues
from .subscription import Subscription

__all__ = ["Client", "Message", "Queues", "Subscription", "Token", "connect"]
