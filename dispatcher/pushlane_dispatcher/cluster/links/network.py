"""The network of a node: its internal listener, and dialling others over TCP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from pushlane_dispatcher.cluster.counters import LinkCounters
from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable, Refusal
from pushlane_dispatcher.cluster.links import dialling
from pushlane_dispatcher.cluster.links.greeting import Me
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.links.listening import open_links
from pushlane_dispatcher.cluster.links.tls import LinkTls
from pushlane_dispatcher.cluster.peers import CannotReach, LinkLike, Refused, Replaced
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_storage.member import Member

log = logging.getLogger(__name__)

Serve = Callable[[LinkLike, str, str], Awaitable[None]]


class LinkNetwork:
    """Made by `open_network`. Links that come before anybody serves them wait."""

    def __init__(
        self, me: Callable[[], Me], key: bytes, tls: LinkTls | None, settings: ClusterSettings
    ) -> None:
        self._me = me
        self._key = key
        self._tls = tls
        self._settings = settings
        self._serve: Serve | None = None
        self._served = trio.Event()
        self._ahead: dict[str, int] = {}
        """By process: its clock, as of its last link."""
        self.address = ""
        """Where the listener is."""
        self.counters = LinkCounters()

    async def serve(self, serve: Serve) -> None:
        """A task: from now on links of others go there."""
        self._serve = serve
        self._served.set()
        await trio.sleep_forever()

    async def take(self, link: Link) -> None:
        """A link that another node dialled."""
        self._look_at_clock(link)
        await self._served.wait()
        assert self._serve is not None
        await self._serve(link, link.peer.process, link.lane)

    async def dial(self, member: Member, lane: str) -> LinkLike:
        try:
            link = await dialling.dial(
                member.address,
                member.process,
                lane=lane,
                me=self._me(),
                key=self._key,
                tls=self._tls,
                settings=self._settings,
                counters=self.counters,
            )
        except LinkUnreachable as failure:
            if failure.nobody_listens:
                raise Refused from None
            raise CannotReach(str(failure)) from None
        except LinkRefused as failure:
            if failure.code is Refusal.OTHER_PROCESS and failure.answered is not None:
                raise Replaced(failure.answered.process, failure.answered.name) from None
            raise CannotReach(str(failure)) from None
        self._look_at_clock(link)
        return link

    def ahead_ms(self, process: str) -> int | None:
        return self._ahead.get(process)

    def numbers(self) -> LinkCounters:
        return self.counters

    def _look_at_clock(self, link: Link) -> None:
        """Say once of a node that its clock is far from ours."""
        found, process = link.agreement, link.peer.process
        known = process in self._ahead
        self._ahead[process] = found.ahead_ms
        if len(self._ahead) > self._settings.links:
            self._ahead.pop(next(iter(self._ahead)))
        if found.clocks_apart and not known:
            log.warning(
                "the clock of node %s is %d s ahead of ours: set both by NTP",
                found.peer.name, found.ahead_ms // 1000,
            )  # fmt: skip


@asynccontextmanager
async def open_network(
    address: str,
    *,
    me: Callable[[], Me],
    key: bytes,
    tls: LinkTls | None,
    settings: ClusterSettings,
) -> AsyncIterator[LinkNetwork]:
    """Listen for other nodes. Raises ValueError or OSError when the address can't be had."""
    network = LinkNetwork(me, key, tls, settings)
    async with open_links(
        address, network.take, me=me, key=key, tls=tls, settings=settings,
        counters=network.counters,
    ) as links:  # fmt: skip
        network.address = links.address
        yield network
