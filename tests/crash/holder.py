"""`python -m tests.crash.holder sdk|http URL QUEUE`: takes a message, and acks it when told to.

Over plain HTTP it has no clock of its own and asks for its ack however late it is; the SDK knows
by itself when its lease must be over. Either way a holder that was stopped past it must not
succeed.
"""

from __future__ import annotations

import asyncio
import sys

import pushlane
from pushlane.core.queues import Call
from tests.crash.load import LEASE_MS


async def hold(how: str, url: str, queue: str) -> None:
    async with pushlane.connect(url) as client:
        if how == "sdk":
            await _hold(client, queue)
        else:
            await _hold_over_http(client, queue)


async def _hold(client: pushlane.Client, queue: str) -> None:
    subscription = await client.subscribe(queue, credit=1, lease_ms=LEASE_MS)
    message = await anext(subscription)
    await subscription.close()
    _wait_for_word(message.fence)
    try:
        await message.ack()
        print("ok", flush=True)
    except pushlane.LeaseLost:
        print("lease_lost", flush=True)


async def _hold_over_http(client: pushlane.Client, queue: str) -> None:
    path = f"/v1/queues/{queue}/"
    options = {"max": 1, "wait_ms": 10_000, "lease_ms": LEASE_MS}
    (message,) = (await client.queues._request(Call("POST", path + "receive", options)))["messages"]
    _wait_for_word(message["fence"])
    receipts = {"receipts": [message["receipt"]]}
    answer = await client.queues._request(Call("POST", path + "ack", receipts))
    print("lease_lost" if answer.get("lease_lost") else "ok", flush=True)


def _wait_for_word(fence: int | None) -> None:
    """Deaf and blind meanwhile, as one whose process is stopped."""
    print(f"took {fence}", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
